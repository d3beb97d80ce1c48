// Where the tests of this room find .proto files, committed data and generated messages.
#pragma once

#include <google/protobuf/compiler/importer.h>
#include <google/protobuf/descriptor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace moeplan {

// The path of a committed file, relative to the repository's root.
std::string SourcePath(const std::string& relative);

// "moeplan/v1/plan.proto" and so on: what lies in the folder, sorted.
std::vector<std::string> ProtoFileNames();

// The generated descriptors of those files that have messages; naming them also keeps the linker from dropping them.
std::vector<const google::protobuf::FileDescriptor*> GeneratedFiles();

// Every message of these files, nested ones too, map entries not.
std::vector<const google::protobuf::Descriptor*> AllMessages(
    const std::vector<const google::protobuf::FileDescriptor*>& files);

// .proto sources parsed with their comments. Owns the descriptors.
class ParsedProtos {
 public:
  // The repository's own files.
  ParsedProtos();
  // Texts by file name.
  explicit ParsedProtos(const std::map<std::string, std::string>& texts);
  ~ParsedProtos();

  // Adds a failure to the running test where a file does not parse.
  const std::vector<const google::protobuf::FileDescriptor*>& files() const { return files_; }

 private:
  void Import(const std::vector<std::string>& names);

  std::unique_ptr<google::protobuf::compiler::SourceTree> tree_;
  std::unique_ptr<google::protobuf::compiler::MultiFileErrorCollector> errors_;
  std::unique_ptr<google::protobuf::compiler::Importer> importer_;
  std::vector<const google::protobuf::FileDescriptor*> files_;
};

}  // namespace moeplan
