// Opening: what must be refused, in which words, and what must be left as it was.
#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

#include "db/migrations.h"
#include "db/store.h"
#include "models/text.h"
#include "tests/db/scratch.h"

namespace moeplan {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

const int kReadWriteCreate = SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE;

std::vector<std::string> FilesIn(const ScratchFolder& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder.path())) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

void MakeDatabase(const fs::path& path) {
  Store store = MustOpen(path);
  (void)Must(store.SaveProfile(SmallProfile("a")));
}

// The tables and indexes of a database as SQL.
std::vector<std::string> SchemaOf(SQLite::Database& database) {
  SQLite::Statement select(database, "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name");
  std::vector<std::string> schema;
  while (select.executeStep()) schema.push_back(select.getColumn(0).getString());
  return schema;
}

// Runs in a child without root's power over permissions; zero when `expectation` holds there.
int AsNobody(const std::function<bool()>& expectation) {
  return WaitFor(Fork([&] {
    BecomeNobody();
    return expectation() ? 0 : 1;
  }));
}

// On a mismatch, prints the status to tell why.
bool Is(const Status& status, StatusCode code, std::string_view part) {
  if (status.code() == code && status.message().find(part) != std::string::npos) return true;
  fprintf(stderr, "found %s: %s\n", std::string(Name(status.code())).c_str(), status.message().c_str());
  return false;
}

TEST(OpenTest, ReadingAnAbsentFileFailsAndLeavesItAbsent) {
  const ScratchFolder folder;
  const Status status = Store::OpenReadOnly(folder / "absent.db").status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr((folder / "absent.db").string() + ": no such database"));
  EXPECT_THAT(FilesIn(folder), SizeIs(0));
}

TEST(OpenTest, AnAbsentFolderIsNamedAndNotMade) {
  const ScratchFolder folder;
  for (const Status& status :
       {Store::Open(folder / "no/store.db").status(), Store::OpenReadOnly(folder / "no/store.db").status()}) {
    EXPECT_EQ(status.code(), StatusCode::kNotFound);
    EXPECT_THAT(status.message(), HasSubstr("no/store.db: its folder does not exist"));
  }
  EXPECT_THAT(FilesIn(folder), SizeIs(0));
}

TEST(OpenTest, AFolderOrNothingIsNoDatabase) {
  const ScratchFolder folder;
  EXPECT_TRUE(Is(Store::Open(folder.path()).status(), StatusCode::kInvalidInput, "found a folder"));
  EXPECT_TRUE(Is(Store::OpenReadOnly(folder.path()).status(), StatusCode::kInvalidInput, "found a folder"));
  EXPECT_TRUE(Is(Store::Open("").status(), StatusCode::kInvalidInput, "empty path"));
  EXPECT_TRUE(Is(Store::OpenReadOnly("").status(), StatusCode::kInvalidInput, "empty path"));
}

TEST(OpenTest, AnEmptyFileIsFilledByWritersAndReportedToReaders) {
  const ScratchFolder folder;
  WriteBytes(folder / "empty.db", "");
  EXPECT_TRUE(Is(Store::OpenReadOnly(folder / "empty.db").status(), StatusCode::kNotFound, "is empty"));
  EXPECT_EQ(fs::file_size(folder / "empty.db"), 0u);
  MakeDatabase(folder / "empty.db");
  EXPECT_TRUE(Store::OpenReadOnly(folder / "empty.db").ok());
}

TEST(OpenTest, AReaderReadsAndCannotWrite) {
  const ScratchFolder folder;
  MakeDatabase(folder / "store.db");
  const std::string before = ReadBytes(folder / "store.db");
  StatusOr<Store> store = Store::OpenReadOnly(folder / "store.db");
  ASSERT_TRUE(store.ok()) << store.status().message();
  EXPECT_EQ(Must(store->LoadProfile()).name, "a");
  EXPECT_EQ(store->SaveProfile(SmallProfile("b")).status().code(), StatusCode::kPermissionDenied);
  EXPECT_TRUE(ReadBytes(folder / "store.db") == before);
  store = NotFound("closed");
  EXPECT_THAT(FilesIn(folder), ElementsAre("store.db"));
}

TEST(OpenTest, AReaderSeesWhatAnOpenWriterHasCommitted) {
  const ScratchFolder folder;
  Store writer = MustOpen(folder / "store.db");
  (void)Must(writer.SaveProfile(SmallProfile("a")));
  StatusOr<Store> reader = Store::OpenReadOnly(folder / "store.db");
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  EXPECT_EQ(Must(reader->LoadProfile()).version, 1);
  (void)Must(writer.SaveProfile(SmallProfile("a")));
  EXPECT_EQ(Must(reader->LoadProfile()).version, 2);
}

TEST(OpenTest, TheFileIsInWalModeAtTheCurrentVersion) {
  const ScratchFolder folder;
  MakeDatabase(folder / "store.db");
  SQLite::Database database((folder / "store.db").string());
  EXPECT_EQ(database.execAndGet("PRAGMA journal_mode").getString(), "wal");
  EXPECT_EQ(db::SchemaVersion(database), db::kSchemaVersion);
}

TEST(OpenTest, ANewerDatabaseIsRefusedAndNotTouched) {
  const ScratchFolder folder;
  MakeDatabase(folder / "store.db");
  SQLite::Database((folder / "store.db").string(), SQLite::OPEN_READWRITE)
      .exec(StrCat("PRAGMA user_version = ", db::kSchemaVersion + 1));
  const std::string before = ReadBytes(folder / "store.db");
  const std::string expected =
      StrCat(": found schema version ", db::kSchemaVersion + 1, ", this moeplan knows versions up to ",
             db::kSchemaVersion, "; upgrade moeplan, or use another database");
  EXPECT_TRUE(Is(Store::Open(folder / "store.db").status(), StatusCode::kDataLoss, expected));
  EXPECT_TRUE(Is(Store::OpenReadOnly(folder / "store.db").status(), StatusCode::kDataLoss, expected));
  EXPECT_TRUE(ReadBytes(folder / "store.db") == before);
}

TEST(OpenTest, AnotherProgramsDatabaseIsRefusedAndNotTouched) {
  const ScratchFolder folder;
  SQLite::Database((folder / "other.db").string(), kReadWriteCreate).exec("CREATE TABLE bookmark (url TEXT)");
  const std::string before = ReadBytes(folder / "other.db");
  EXPECT_TRUE(Is(Store::Open(folder / "other.db").status(), StatusCode::kInvalidInput, "another program"));
  EXPECT_TRUE(Is(Store::OpenReadOnly(folder / "other.db").status(), StatusCode::kInvalidInput, "another program"));
  EXPECT_TRUE(ReadBytes(folder / "other.db") == before);
}

TEST(OpenTest, ALockedDatabaseIsUnavailableAfterTheTimeoutAndWellAfterwards) {
  const ScratchFolder folder;
  Store store = MustOpen(folder / "store.db", {.busy_timeout = milliseconds(50)});
  SQLite::Database other((folder / "store.db").string(), SQLite::OPEN_READWRITE);
  other.exec("BEGIN IMMEDIATE");
  const auto begin = std::chrono::steady_clock::now();
  const Status status = store.SaveProfile(SmallProfile("a")).status();
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(45));
  EXPECT_TRUE(Is(status, StatusCode::kUnavailable, "store.db: the database is locked by another process; wait until"));
  EXPECT_TRUE(Must(store.ListProfiles()).profiles.empty());  // Readers go on.
  other.exec("ROLLBACK");
  EXPECT_EQ(Must(store.SaveProfile(SmallProfile("a"))).version, 1);
}

TEST(OpenTest, OpeningALockedNewFileIsUnavailable) {
  const ScratchFolder folder;
  SQLite::Database other((folder / "store.db").string(), kReadWriteCreate);
  other.exec("BEGIN EXCLUSIVE");
  const Status status = Store::Open(folder / "store.db", {.busy_timeout = milliseconds(50)}).status();
  EXPECT_TRUE(Is(status, StatusCode::kUnavailable, "locked by another process"));
}

// Lets everybody read a database, as an owner may who shares it: it was made for the owner alone.
void ShareForReading(const fs::path& path) {
  for (const char* file : {"", "-wal", "-shm"}) {
    const fs::path one = path.string() + file;
    if (fs::exists(one)) fs::permissions(one, fs::perms(0644));
  }
}

TEST(OpenPermissionTest, APathMayHoldAnyLetter) {
  const ScratchFolder folder;
  const fs::path path = folder / "a b?mode=rw#100%20é'.db";
  MakeDatabase(path);
  ShareForReading(path);
  fs::permissions(folder.path(), fs::perms(0555));
  EXPECT_EQ(AsNobody([&] { return Must(Store::OpenReadOnly(path)->LoadProfile()).name == "a"; }), 0);
}

TEST(OpenPermissionTest, AFileThatMayNotBeWrittenIsDeniedToWritersAndReadByReaders) {
  const ScratchFolder folder;
  MakeDatabase(folder / "store.db");
  fs::permissions(folder / "store.db", fs::perms(0444));
  for (const auto folder_permissions : {fs::perms(0777), fs::perms(0555)}) {
    fs::permissions(folder.path(), folder_permissions);
    EXPECT_EQ(AsNobody([&] {
                return Is(Store::Open(folder / "store.db").status(), StatusCode::kPermissionDenied,
                          "store.db: may not be written (Permission denied)");
              }),
              0);
    EXPECT_EQ(AsNobody([&] {
                StatusOr<Store> store = Store::OpenReadOnly(folder / "store.db");
                return store.ok() ? Must(store->LoadProfile()).name == "a" : Is(store.status(), StatusCode::kOk, "");
              }),
              0);
    EXPECT_THAT(FilesIn(folder), ElementsAre("store.db"));
  }
}

TEST(OpenPermissionTest, AReaderWithoutPermissionToWriteSeesWhatAnOpenWriterHasCommitted) {
  const ScratchFolder folder;
  Store writer = MustOpen(folder / "store.db");
  (void)Must(writer.SaveProfile(SmallProfile("a")));
  ShareForReading(folder / "store.db");
  fs::permissions(folder.path(), fs::perms(0555));
  EXPECT_EQ(AsNobody([&] {
              const StatusOr<Store> store = Store::OpenReadOnly(folder / "store.db");
              return store.ok() ? Must(store->LoadProfile()).name == "a" : Is(store.status(), StatusCode::kOk, "");
            }),
            0);
}

// One end each for a process and its child.
class Turn {
 public:
  Turn() { EXPECT_EQ(pipe(ends_), 0); }
  ~Turn() {
    Close(0);
    Close(1);
  }
  // Each first lets go of the other's end, so that nobody awaits who has left.
  void Give() {
    Close(0);
    EXPECT_EQ(write(ends_[1], "x", 1), 1);
  }
  bool Await() {
    Close(1);
    char ignored = 0;
    return read(ends_[0], &ignored, 1) == 1;
  }

 private:
  void Close(int end) {
    if (ends_[end] >= 0) close(std::exchange(ends_[end], -1));
  }

  int ends_[2] = {-1, -1};
};

// A planner that may only read learns of tokens that are revoked, and of profiles.
TEST(OpenPermissionTest, AReaderWithoutPermissionToWriteSeesWhatIsWrittenLater) {
  const ScratchFolder folder;
  MakeDatabase(folder / "store.db");
  ShareForReading(folder / "store.db");
  fs::create_directory(folder / "links");
  fs::create_symlink(folder / "store.db", folder / "links/store.db");
  fs::permissions(folder / "links", fs::perms(0555));
  for (const auto permissions : {fs::perms(0555), fs::perms(0777)}) {
    fs::permissions(folder.path(), permissions);
    for (const char* path : {"store.db", "links/store.db"}) {
      SCOPED_TRACE(path);
      Turn parents, childs;
      const pid_t child = Fork([&] {
        BecomeNobody();
        const StatusOr<Store> store = Store::OpenReadOnly(folder / path);
        if (!store.ok()) return 2;
        const auto versions = [&] { return Must(store->ListProfiles()).profiles.size(); };
        const size_t before = versions();
        for (const size_t more : {1, 2}) {
          parents.Give();
          if (!childs.Await()) return 3;
          if (versions() != before + more) return 1;
        }
        return 0;
      });
      bool there = parents.Await();
      if (there) {
        Store writer = MustOpen(folder / "store.db");
        (void)Must(writer.SaveProfile(SmallProfile("b")));
        childs.Give();  // Who has it open,
        there = parents.Await();
      }
      if (there) {
        (void)Must(MustOpen(folder / "store.db").SaveProfile(SmallProfile("c")));  // and nobody any more.
        childs.Give();
      }
      EXPECT_TRUE(there);
      EXPECT_EQ(WaitFor(child), 0);
    }
  }
}

TEST(OpenPermissionTest, AFolderThatMayNotBeWrittenIsNamed) {
  const ScratchFolder folder;
  fs::permissions(folder.path(), fs::perms(0555));
  EXPECT_EQ(AsNobody([&] {
              return Is(Store::Open(folder / "store.db").status(), StatusCode::kPermissionDenied,
                        folder.path().string() + ": may not be written (Permission denied)");
            }),
            0);
}

TEST(OpenPermissionTest, AFileThatMayNotBeReadIsDenied) {
  const ScratchFolder folder;
  MakeDatabase(folder / "store.db");
  fs::permissions(folder / "store.db", fs::perms(0000));
  fs::permissions(folder.path(), fs::perms(0755));
  EXPECT_EQ(AsNobody([&] {
              return Is(Store::OpenReadOnly(folder / "store.db").status(), StatusCode::kPermissionDenied,
                        "store.db: may not be read (Permission denied)");
            }),
            0);
}

TEST(OpenPermissionTest, AFolderThatMayNotBeEnteredIsDenied) {
  const ScratchFolder folder;
  MakeDatabase(folder / "store.db");
  fs::permissions(folder.path(), fs::perms(0000));
  for (const bool for_writing : {false, true}) {
    EXPECT_EQ(AsNobody([&] {
                const fs::path path = folder / "store.db";
                const Status status = for_writing ? Store::Open(path).status() : Store::OpenReadOnly(path).status();
                return Is(status, StatusCode::kPermissionDenied, "store.db: may not be reached (Permission denied)");
              }),
              0);
  }
}

// What a moeplan of schema versions 1 and 2 wrote for SmallProfile("old"), and one of version 2 for SmallBatch("1",
// 1e-3), with the seals of both.
constexpr char kOldProfile[] = R"sql(
INSERT INTO profile VALUES (1, 'old', 1, '2025-01-01T00:00:00Z', 2, 4, 0.0, 0.0);
INSERT INTO cost_model VALUES (1, 0, 'ALL_TO_ALL', 'DIRECT', 8, 4, 0, 0, 'NONE', NULL, NULL, NULL, NULL,
  '{"curve":{"logLog":{"points":[[1024.0,1e-05],[1048576.0,0.0002]]}},"sizeHigh":1048576.0,"sizeLow":1024.0}');
INSERT INTO cost_model VALUES (1, 1, NULL, NULL, NULL, NULL, NULL, NULL, 'NONE', NULL, 'EXPERT_GEMM', NULL, NULL,
  '{"curve":{"alphaBeta":{"alphaS":1e-06,"betaSPerUnit":1e-12}},"sizeHigh":"Infinity","sizeLow":0.0}');
INSERT INTO seal VALUES ('profile', 1, 9137945932695097097);
)sql";
constexpr char kOldBatch[] = R"sql(
INSERT INTO calibration VALUES (1, 'monday', 'cluster a', 2, 4, 0.0, 0.0);
INSERT INTO sample_batch VALUES (1, 1, '1', '2025-01-01T00:00:00Z');
INSERT INTO sample VALUES (1, 0, 'ALL_TO_ALL', 'DIRECT', 8, 4, 0, 0, 'NONE', NULL, NULL, NULL, NULL, 1048576.0,
  '[0.001,0.002]', '{"hostname":"1"}');
INSERT INTO seal VALUES ('sample_batch', 1, -1113666759701579648);
)sql";

class MigrationTest : public testing::Test {
 protected:
  void MakeVersion1() {
    SQLite::Database database(path_.string(), kReadWriteCreate);
    db::Migrate(database, 1);
    database.exec(kOldProfile);
  }
  void MakeVersion2() {
    SQLite::Database database(path_.string(), kReadWriteCreate);
    db::Migrate(database, 2);
    database.exec(kOldProfile);
    database.exec(kOldBatch);
  }

  static Profile Expected() {
    Profile profile = SmallProfile("old");
    profile.version = 1;
    profile.created_at = "2025-01-01T00:00:00Z";
    return profile;
  }

  ScratchFolder folder_;
  fs::path path_ = folder_ / "store.db";
};

TEST_F(MigrationTest, Version1HasNoPlansYet) {
  MakeVersion1();
  SQLite::Database database(path_.string());
  EXPECT_EQ(db::SchemaVersion(database), 1);
  EXPECT_TRUE(database.tableExists("profile"));
  EXPECT_FALSE(database.tableExists("plan"));
}

TEST_F(MigrationTest, OpeningAnOlderDatabaseBringsItUpToDateAndKeepsItsContents) {
  MakeVersion1();
  Store store = MustOpen(path_);
  EXPECT_EQ(Must(store.LoadProfile()), Expected());
  const PlanId plan = Must(store.SavePlan({.profile_name = "old", .profile_version = 1, .answer = "{}"}));
  EXPECT_EQ(Must(store.LoadPlan(plan)).answer, "{}");
  SQLite::Database migrated(path_.string());
  SQLite::Database fresh(":memory:", kReadWriteCreate);
  db::Migrate(fresh, db::kSchemaVersion);
  EXPECT_EQ(SchemaOf(migrated), SchemaOf(fresh));
}

TEST_F(MigrationTest, AReaderReadsAnOlderDatabaseAndLeavesItOld) {
  MakeVersion1();
  const std::string before = ReadBytes(path_);
  StatusOr<Store> store = Store::OpenReadOnly(path_);
  ASSERT_TRUE(store.ok()) << store.status().message();
  EXPECT_EQ(Must(store->LoadProfile()), Expected());
  EXPECT_EQ(store->LoadPlan({1}).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(store->SaveProfile(SmallProfile("b")).status().code(), StatusCode::kPermissionDenied);
  EXPECT_TRUE(ReadBytes(path_) == before);
}

TEST_F(MigrationTest, Version2KnowsNoCtasAndItsSealsHold) {
  MakeVersion2();
  Store store = MustOpen(path_);
  EXPECT_EQ(Must(store.LoadProfile()), Expected());
  const SampleBatch batch = SmallBatch("1", 1e-3);
  EXPECT_EQ(Must(store.SamplesOf({})).at(0).samples, batch.samples);
  EXPECT_EQ(Must(store.AppendSamples({&batch, 1})).repeated, 1);  // What is there is known again.
  Profile limited = SmallProfile("old");
  limited.collectives[0].key.ctas = 8;
  (void)Must(store.SaveProfile(limited));
  EXPECT_EQ(Must(store.LoadProfile()).collectives, limited.collectives);
  EXPECT_EQ(Must(store.LoadProfile({.version = 1})), Expected());
}

TEST_F(MigrationTest, Version2HasAProvenanceInEachSamplesRow) {
  MakeVersion2();
  const Store store = MustOpen(path_);
  const KeySamples old = Must(store.SamplesOfKey("cluster a", SmallBatch("1", 1e-3).samples.samples.at(0).key));
  ASSERT_EQ(old.origin_of, std::vector<int>{0});
  EXPECT_EQ(old.origins.at(0), (KeySamples::Origin{.request_id = "1",
                                                   .calibration = "monday",
                                                   .received_at = "2025-01-01T00:00:00Z",
                                                   .provenance = {{"hostname", "1"}}}));
}

TEST_F(MigrationTest, Version6KnowsNoRequestsOfRunsAndTheirSealsHold) {
  PlanId plan;
  const SampleBatch batch = SmallBatch("1", 1e-3);
  {
    Store store = MustOpen(path_);
    plan = Must(store.SavePlan({.answer = "{}"}));
    (void)Must(store.SaveRun({.plan = plan, .schedule = "BASELINE", .measured_time_s = 1}));
    (void)Must(store.AppendSamples({&batch, 1}));
  }
  SQLite::Database(path_.string(), SQLite::OPEN_READWRITE)
      .exec(
          "DROP INDEX run_by_request; ALTER TABLE run DROP COLUMN request_id; DROP TABLE retired_key;"
          "DROP TABLE withdrawal; DROP TABLE agent_name; ALTER TABLE profile DROP COLUMN node_link_bytes_per_s;"
          "ALTER TABLE profile DROP COLUMN network_bytes_per_s; ALTER TABLE calibration DROP COLUMN "
          "network_bytes_per_s;"
          "ALTER TABLE calibration DROP COLUMN node_link_bytes_per_s; PRAGMA user_version = 6");
  Store store = MustOpen(path_);
  ASSERT_EQ(Must(store.RunsOf(plan)).size(), 1U);
  EXPECT_EQ(Must(store.RunsOf(plan))[0].request_id, "");
  EXPECT_EQ(Must(store.SamplesOf({})).at(0).samples, batch.samples);
  (void)Must(store.SaveRun({.plan = plan, .schedule = "BASELINE", .request_id = "r"}));
  EXPECT_EQ(Must(store.RunsOf(plan)).at(1).request_id, "r");
}

TEST_F(MigrationTest, Version9KnowsNoRatesOfLinksAndItsSealsHold) {
  MakeVersion2();
  {
    SQLite::Database database(path_.string(), SQLite::OPEN_READWRITE);
    db::Migrate(database, 9);
  }
  EXPECT_EQ(Must(Store::OpenReadOnly(path_)->LoadProfile()), Expected());
  Store store = MustOpen(path_);
  EXPECT_EQ(Must(store.LoadProfile()), Expected());
  const SampleBatch batch = SmallBatch("1", 1e-3);
  EXPECT_EQ(Must(store.SamplesOf({})).at(0).samples, batch.samples);
  EXPECT_EQ(Must(store.AppendSamples({&batch, 1})).repeated, 1);
  // One rate alone, either, and both.
  for (const auto& [node_link, network] : {std::pair(4.5e11, 0.0), std::pair(0.0, 5e10), std::pair(4.5e11, 5e10)}) {
    Profile wired = SmallProfile("wired");
    wired.cluster.node_link_bytes_per_s = node_link;
    wired.cluster.network_bytes_per_s = network;
    (void)Must(store.SaveProfile(wired));
    EXPECT_EQ(Must(store.LoadProfile()).cluster, wired.cluster);
    EXPECT_EQ(Must(store.ListOverviews({})).profiles.at(0).cluster, wired.cluster);
  }
  // Links of another rate are no other cluster: they may have slowed down.
  SampleBatch wired = SmallBatch("2", 1e-3);
  wired.calibration = "tuesday";
  wired.samples.cluster.network_bytes_per_s = 5e10;
  (void)Must(store.AppendSamples({&wired, 1}));
  wired.request_id = "3";
  wired.calibration = "wednesday";
  wired.samples.cluster.network_bytes_per_s = 4e10;
  (void)Must(store.AppendSamples({&wired, 1}));
  EXPECT_EQ(Must(store.SamplesOf({})).at(2).samples.cluster, wired.samples.cluster);
}

TEST_F(MigrationTest, ARateThatComesOrGoesBreaksTheSeal) {
  Profile wired = SmallProfile("wired");
  wired.cluster.network_bytes_per_s = 5e10;
  (void)Must(MustOpen(path_).SaveProfile(wired));
  const auto damaged_by = [&](const char* change) {
    SQLite::Database(path_.string(), SQLite::OPEN_READWRITE).exec(change);
    return MustOpen(path_).LoadProfile().status();
  };
  EXPECT_TRUE(Is(damaged_by("UPDATE profile SET node_link_bytes_per_s = 1"), StatusCode::kDataLoss, "profile 1"));
  EXPECT_EQ(damaged_by("UPDATE profile SET node_link_bytes_per_s = NULL"), OkStatus());
  EXPECT_TRUE(Is(damaged_by("UPDATE profile SET network_bytes_per_s = NULL"), StatusCode::kDataLoss, "profile 1"));
}

TEST_F(MigrationTest, ALimitThatComesOrGoesBreaksTheSeal) {
  MakeVersion2();
  (void)MustOpen(path_);
  const auto damaged_by = [&](const char* change) {
    SQLite::Database(path_.string(), SQLite::OPEN_READWRITE).exec(change);
    return MustOpen(path_).LoadProfile().status();
  };
  EXPECT_TRUE(Is(damaged_by("UPDATE cost_model SET ctas = 8 WHERE ordinal = 0"), StatusCode::kDataLoss, "profile 1"));
  EXPECT_EQ(damaged_by("UPDATE cost_model SET ctas = NULL"), OkStatus());
  Profile limited = SmallProfile("new");
  limited.collectives[0].key.ctas = 8;
  (void)Must(MustOpen(path_).SaveProfile(limited));
  EXPECT_TRUE(Is(damaged_by("UPDATE cost_model SET ctas = NULL"), StatusCode::kDataLoss, "profile 2"));
}

TEST_F(MigrationTest, AStepThatFailsLeavesTheVersionBefore) {
  MakeVersion1();
  SQLite::Database(path_.string(), SQLite::OPEN_READWRITE).exec("CREATE TABLE run (in_the_way TEXT)");
  EXPECT_TRUE(Is(Store::Open(path_).status(), StatusCode::kDataLoss, "table run already exists"));
  SQLite::Database database(path_.string());
  EXPECT_EQ(db::SchemaVersion(database), 1);
  EXPECT_FALSE(database.tableExists("plan"));
}

TEST_F(MigrationTest, MigratingTwiceChangesNothing) {
  SQLite::Database database(path_.string(), kReadWriteCreate);
  db::Migrate(database, db::kSchemaVersion);
  const std::vector<std::string> once = SchemaOf(database);
  db::Migrate(database, db::kSchemaVersion);
  db::Migrate(database, 1);
  EXPECT_EQ(SchemaOf(database), once);
  EXPECT_EQ(db::SchemaVersion(database), db::kSchemaVersion);
}

}  // namespace
}  // namespace moeplan
