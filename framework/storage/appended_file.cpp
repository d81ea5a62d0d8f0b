#include "framework/storage/appended_file.h"

namespace ringtrain {

void AppendedFile::undo() {
  if (torn_) file_.truncate(end_);
  torn_ = false;
}

void AppendedFile::append() {
  if (waiting_.empty()) return;
  undo();
  end_ = file_.size();
  torn_ = true;
  try {
    file_.write(waiting_);
  } catch (const Error&) {
    try {
      undo();
    } catch (const Error&) {  // the next append() starts by truncating
    }
    throw;
  }
  torn_ = false;
  waiting_.clear();
}

}  // namespace ringtrain
