#include "db/agent_name_rows.h"

#include <cstdint>

#include "db/seal.h"

namespace moeplan::db {
namespace {

constexpr char kInsertName[] = "INSERT INTO agent_name (name, caller, bound_at) VALUES (?, ?, ?)";
constexpr char kSelectNewestNames[] = "SELECT max(id) FROM agent_name GROUP BY name ORDER BY name";
constexpr char kSelectName[] = "SELECT name, caller, bound_at FROM agent_name WHERE id = ?";

constexpr SealedThing kAgentName = {.name = "agent_name", .head = kSelectName};

}  // namespace

void InsertAgentName(SQLite::Database& database, const AgentNameRecord& record, const std::string& bound_at) {
  SQLite::Statement insert(database, kInsertName);
  insert.bind(1, record.name);
  insert.bind(2, record.caller);
  insert.bind(3, bound_at);
  insert.exec();
  Seal(database, kAgentName, database.getLastInsertRowid());
}

std::vector<AgentNameRecord> SelectAgentNames(SQLite::Database& database) {
  SQLite::Statement newest(database, kSelectNewestNames);
  std::vector<AgentNameRecord> records;
  while (newest.executeStep()) {
    const std::int64_t id = newest.getColumn(0).getInt64();
    CheckSeal(database, kAgentName, id);
    SQLite::Statement select(database, kSelectName);
    select.bind(1, id);
    select.executeStep();
    records.push_back({.name = select.getColumn(0).getString(), .caller = select.getColumn(1).getString()});
  }
  return records;
}

}  // namespace moeplan::db
