// RunSorter: sorts more records than memory should hold. Records go to a buffer; a full buffer is sorted and written to
// an unnamed temporary file; reading merges the runs. Below the budget nothing touches the disk.
#pragma once
#include <algorithm>
#include <cstdio>
#include <memory>
#include <queue>
#include <type_traits>
#include <vector>

namespace harness {

// A file without a name in $TMPDIR (or /tmp): gone when it is closed. Throws fsdp::Error.
std::FILE* open_temporary();
[[noreturn]] void temporary_failed(const char* what);

// Less must be a strict total order up to records that are alike. T is plain data.
template <class T, class Less>
class RunSorter {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  explicit RunSorter(std::size_t budget_bytes, Less less = {})
      : capacity_(std::max<std::size_t>(budget_bytes / sizeof(T), 1024)), less_(less) {}

  void push(const T& record) {
    if (buffer_.size() == capacity_) spill();
    if (buffer_.size() == buffer_.capacity()) {
      buffer_.reserve(std::min(capacity_, std::max<std::size_t>(1024, 2 * buffer_.size())));
    }
    buffer_.push_back(record);
    ++size_;
  }
  std::size_t size() const { return size_; }
  bool spilled() const { return !runs_.empty(); }

  // Reads in order. One cursor at a time; push() must not follow the first. The sorter must outlive it.
  class Cursor {
   public:
    bool next(T& out) {
      if (s_.runs_.empty()) {
        if (at_ == s_.buffer_.size()) return false;
        out = s_.buffer_[at_++];
        return true;
      }
      if (heads_.empty()) return false;
      const std::size_t i = heads_.top();
      heads_.pop();
      out = s_.runs_[i].block[s_.runs_[i].at++];
      if (s_.load(s_.runs_[i])) heads_.push(i);
      return true;
    }

   private:
    friend class RunSorter;
    struct Later {
      RunSorter* s;
      bool operator()(std::size_t a, std::size_t b) const {
        const T &x = s->runs_[a].block[s->runs_[a].at], &y = s->runs_[b].block[s->runs_[b].at];
        return s->less_(y, x) || (!s->less_(x, y) && b < a);
      }
    };
    explicit Cursor(RunSorter& s) : s_(s), heads_(Later{&s}) {
      for (std::size_t i = 0; i < s.runs_.size(); ++i) {
        std::rewind(s.runs_[i].file.get());
        s.runs_[i].taken = s.runs_[i].at = 0;
        s.runs_[i].block.clear();
        if (s.load(s.runs_[i])) heads_.push(i);
      }
    }
    RunSorter& s_;
    std::size_t at_ = 0;
    std::priority_queue<std::size_t, std::vector<std::size_t>, Later> heads_;
  };
  Cursor cursor() {
    sort();
    return Cursor(*this);
  }
  template <class F>
  void for_each(F f) {
    T record;
    for (Cursor c = cursor(); c.next(record);) f(record);
  }
  void clear() {
    buffer_ = {};
    runs_.clear();
    size_ = 0;
    sorted_ = false;
  }

 private:
  struct Closer {
    void operator()(std::FILE* f) const { std::fclose(f); }
  };
  struct Run {
    std::unique_ptr<std::FILE, Closer> file;
    std::size_t count = 0, taken = 0;
    std::vector<T> block;
    std::size_t at = 0;
  };
  static constexpr std::size_t kBlock = std::max<std::size_t>(1, (1 << 18) / sizeof(T));

  void spill() {
    if (buffer_.empty()) return;
    if (!std::is_sorted(buffer_.begin(), buffer_.end(), less_)) std::sort(buffer_.begin(), buffer_.end(), less_);
    Run run;
    run.file.reset(open_temporary());
    run.count = buffer_.size();
    if (std::fwrite(buffer_.data(), sizeof(T), buffer_.size(), run.file.get()) != buffer_.size() ||
        std::fflush(run.file.get()) != 0) {
      temporary_failed("write");
    }
    runs_.push_back(std::move(run));
    buffer_.clear();
  }

  bool load(Run& run) {
    if (run.at < run.block.size()) return true;
    const std::size_t n = std::min(kBlock, run.count - run.taken);
    if (n == 0) return false;
    run.block.resize(n);
    if (std::fread(run.block.data(), sizeof(T), n, run.file.get()) != n) temporary_failed("read");
    run.taken += n;
    run.at = 0;
    return true;
  }

  void sort() {
    if (sorted_) return;
    if (!runs_.empty()) spill(), buffer_ = {};
    if (!std::is_sorted(buffer_.begin(), buffer_.end(), less_)) std::sort(buffer_.begin(), buffer_.end(), less_);
    sorted_ = true;
  }

  std::size_t capacity_;
  Less less_;
  std::vector<T> buffer_;
  std::vector<Run> runs_;
  std::size_t size_ = 0;
  bool sorted_ = false;
};

}  // namespace harness
