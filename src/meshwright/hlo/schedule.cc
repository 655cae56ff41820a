#include "meshwright/hlo/schedule.h"

#include <fmt/format.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "meshwright/base/status_macros.h"
#include "meshwright/hlo/module.h"
#include "proto/xla_schedule.pb.h"

namespace mw::hlo {
namespace {

using proto::ScheduleInstruction;

// Fields that we do not read are warnings of the parser's; errors are kept.
class ErrorCollector final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int column, const std::string& message) override {
    if (error_.empty()) error_ = fmt::format("line {}:{}: {}", line + 1, column + 1, message);
  }
  void AddWarning(int, int, const std::string&) override {}
  const std::string& error() const { return error_; }

 private:
  std::string error_;
};

absl::StatusOr<proto::ScheduleDump> ParseText(std::string_view text) {
  proto::ScheduleDump dump;
  ErrorCollector errors;
  google::protobuf::TextFormat::Parser parser;
  parser.AllowUnknownField(true);
  parser.RecordErrorsTo(&errors);
  google::protobuf::io::ArrayInputStream stream(text.data(), static_cast<int>(text.size()));
  if (!parser.Parse(&stream, &dump)) {
    return absl::InvalidArgumentError(
        fmt::format("the schedule cannot be read: {}", errors.error()));
  }
  if (dump.computation_schedules().empty() || !dump.has_hlo_module()) {
    return absl::InvalidArgumentError("the compiler left no schedule in its dump");
  }
  return dump;
}

// The number after `key` in `text`; 0 without it or where it says that it is not known.
double NumberAfter(std::string_view text, std::string_view key) {
  const size_t at = text.find(key);
  if (at == std::string_view::npos) return 0;
  text.remove_prefix(at + key.size());
  while (!text.empty() && (text[0] == '\\' || text[0] == '"' || text[0] == ':')) {
    text.remove_prefix(1);
  }
  int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value >= int64_t{1} << 60 ? 0 : static_cast<double>(value);
}

// What the compiler estimates for an instruction of its last text.
double OwnCycles(const Instruction& instruction) {
  return NumberAfter(instruction.rest, "\"estimated_cycles\"");
}

// The name of a computation without what later passes append to it.
std::string Stem(std::string_view name) {
  constexpr std::string_view kSuffixes[] = {".sunk", ".cloned", ".clone", "_spmd"};
  for (bool cut = true; cut;) {
    cut = false;
    for (const std::string_view suffix : kSuffixes) {
      if (!name.ends_with(suffix)) continue;
      name.remove_suffix(suffix.size());
      cut = true;
    }
    size_t digits = name.size();
    while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') --digits;
    std::string_view rest = name.substr(0, digits);
    if (digits < name.size() && rest.ends_with('.')) {
      name = rest.substr(0, rest.size() - 1);
      cut = true;
    } else if (rest.ends_with(".remat")) {
      name = rest.substr(0, rest.size() - 6);
      cut = true;
    }
  }
  return std::string(name);
}

// Cycles that the compiler estimates for the instructions of each computation of its last
// text, by stem; of several of one stem, the dearest.
std::map<std::string, double> FinalCycles(std::string_view text) {
  std::map<std::string, double> cycles;
  const Module module = ParseModule(text);
  for (const auto& [name, computation] : module.computations) {
    double sum = 0;
    for (const Instruction& instruction : computation) sum += OwnCycles(instruction);
    double& known = cycles[Stem(name)];
    known = std::max(known, sum);
  }
  return cycles;
}

// "reduce-scatter" of "reduce-scatter.125.cloned.1.call-start".
std::string TransferKind(std::string_view name) {
  for (const std::string_view kind :
       {"all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute",
        "ragged-all-to-all", "copy", "slice", "dynamic-slice", "dynamic-update-slice", "gather",
        "scatter"}) {
    if (name.starts_with(kind)) return std::string(kind);
  }
  return "other";
}

class Reader {
 public:
  Reader(const proto::ScheduleDump& dump, std::string_view final_hlo)
      : final_cycles_(FinalCycles(final_hlo)) {
    for (const auto& computation : dump.hlo_module().computations()) {
      computations_[computation.id()] = &computation;
      for (const auto& instruction : computation.instructions()) {
        instructions_[{computation.id(), instruction.id()}] = &instruction;
      }
      if (computation.name() == dump.hlo_module().entry_computation_name()) {
        entry_ = computation.id();
      }
    }
    for (const auto& schedule : dump.computation_schedules()) {
      schedules_[schedule.computation_id()] = &schedule;
      to_ms_ = 1e-3 / schedule.cycles_per_microsecond();
    }
  }

  absl::StatusOr<Schedule> Read() {
    if (!computations_.contains(entry_)) {
      return absl::InvalidArgumentError("the schedule's module has no entry computation");
    }
    MW_RETURN_IF_ERROR(Visit(entry_, 1).status());
    out_.modelled_ms = costs_.at(entry_).cycles * to_ms_;
    out_.exposed_ms = costs_.at(entry_).exposed * to_ms_;
    out_.timeline_ms = costs_.at(entry_).end * to_ms_;
    for (const auto& [target, cycles] : custom_calls_) {
      out_.custom_calls.emplace_back(target, cycles * to_ms_);
    }
    out_.unknown.assign(unknown_.begin(), unknown_.end());
    return std::move(out_);
  }

 private:
  struct Cost {
    double cycles = 0;
    double exposed = 0;
    double end = 0;
    int timeline = -1;  // its place in Schedule::computations
  };

  const ScheduleInstruction* Find(int64_t computation, int64_t id) const {
    const auto it = instructions_.find({computation, id});
    return it == instructions_.end() ? nullptr : it->second;
  }

  // Of a loop that counts up by one from zero to a constant.
  absl::StatusOr<int64_t> Trips(int64_t around, const ScheduleInstruction& loop) const {
    const auto unknown = [&](std::string_view why) {
      return absl::InvalidArgumentError(
          fmt::format("the trips of loop {} cannot be told: {}", loop.name(), why));
    };
    if (loop.called_computation_ids_size() != 2 || loop.operand_ids_size() != 1) {
      return unknown("it has no body and condition");
    }
    const int64_t condition = loop.called_computation_ids(1);
    const auto found = computations_.find(condition);
    if (found == computations_.end()) return unknown("its condition is not there");
    const ScheduleInstruction* compare = Find(condition, found->second->root_id());
    if (compare == nullptr || compare->opcode() != "compare" ||
        compare->comparison_direction() != "LT" || compare->operand_ids_size() != 2) {
      return unknown("its condition is no comparison with a limit");
    }
    const ScheduleInstruction* counter = Find(condition, compare->operand_ids(0));
    const ScheduleInstruction* limit = Find(condition, compare->operand_ids(1));
    if (counter == nullptr || counter->opcode() != "get-tuple-element" || limit == nullptr ||
        limit->literal().s32s_size() != 1) {
      return unknown("its condition compares no counter with a constant");
    }
    const ScheduleInstruction* start = Find(around, loop.operand_ids(0));
    const auto pass = [&](std::initializer_list<std::string_view> opcodes) {
      while (start != nullptr && std::ranges::find(opcodes, start->opcode()) != opcodes.end() &&
             start->operand_ids_size() > 0) {
        start = Find(around, start->operand_ids(0));
      }
    };
    pass({"copy", "opt-barrier"});
    if (start != nullptr && start->opcode() == "tuple" &&
        counter->tuple_index() < start->operand_ids_size()) {
      start = Find(around, start->operand_ids(static_cast<int>(counter->tuple_index())));
      pass({"copy", "bitcast"});
    }
    // Literals of zero are left out of the text.
    if (start == nullptr || start->opcode() != "constant" ||
        (start->literal().s32s_size() > 0 && start->literal().s32s(0) != 0)) {
      return unknown("it does not start at the constant 0");
    }
    return limit->literal().s32s(0);
  }

  // One execution of a computation that is run `trips` times in all.
  absl::StatusOr<Cost> Visit(int64_t id, int64_t trips) {
    const auto found = computations_.find(id);
    if (found == computations_.end()) {
      return absl::InvalidArgumentError("the schedule names a computation that is not there");
    }
    const proto::ScheduleComputation& computation = *found->second;
    const auto scheduled = schedules_.find(id);
    const proto::ComputationSchedule* schedule =
        scheduled == schedules_.end() ? nullptr : scheduled->second;
    Cost cost;
    Timeline timeline;
    timeline.name = computation.name();
    timeline.trips = trips;
    if (schedule != nullptr) {
      cost.timeline = static_cast<int>(out_.computations.size());
      out_.computations.emplace_back();  // the entry's comes first
      cost.cycles = schedule->scheduler_statistics().total_cycles();
      cost.exposed = schedule->scheduler_statistics().total_wasted_cycles();
      for (const auto& op : schedule->instructions()) {
        cost.end = std::max(cost.end, op.end_timestamp_cycles());
      }
    } else {
      const auto known = final_cycles_.find(Stem(computation.name()));
      if (known == final_cycles_.end()) {
        unknown_.insert(computation.name());
      } else {
        cost.cycles = cost.end = known->second;
      }
    }
    std::unordered_map<int64_t, const proto::ScheduledInstruction*> times;
    if (schedule != nullptr) {
      for (const auto& op : schedule->instructions()) times[op.id()] = &op;
    }
    std::unordered_map<int64_t, int> inner;
    for (const ScheduleInstruction& instruction : computation.instructions()) {
      const bool loop = instruction.opcode() == "while";
      const auto time = times.find(instruction.id());
      const double own = time == times.end() ? 0
                                             : time->second->end_timestamp_cycles() -
                                                   time->second->start_timestamp_cycles();
      if (instruction.opcode() == "custom-call" && !instruction.custom_call_target().empty()) {
        custom_calls_[instruction.custom_call_target()] +=
            static_cast<double>(trips) *
            (own > 0 ? own : NumberAfter(instruction.backend_config(), "estimated_cycles"));
      }
      if (!loop && instruction.opcode() != "call" && instruction.opcode() != "conditional") {
        continue;
      }
      int64_t times_run = 1;
      if (loop) {
        MW_ASSIGN_OR_RETURN(times_run, Trips(id, instruction));
      }
      Cost dearest;
      // Of a loop the body only: the condition is a comparison.
      const int num_called = loop ? 1 : instruction.called_computation_ids_size();
      for (int c = 0; c < num_called; ++c) {
        MW_ASSIGN_OR_RETURN(const Cost called,
                            Visit(instruction.called_computation_ids(c), trips * times_run));
        if (called.cycles >= dearest.cycles) dearest = called;
      }
      inner[instruction.id()] = dearest.timeline;
      const auto n = static_cast<double>(times_run);
      cost.cycles += n * dearest.cycles - own;
      cost.exposed += n * dearest.exposed;
      cost.end += n * dearest.end - own;
    }
    if (schedule != nullptr) {
      AddOps(computation, *schedule, inner, &timeline);
      AddTransfers(computation, timeline, trips);
      timeline.end_ms = cost.end * to_ms_;
      out_.computations[static_cast<size_t>(cost.timeline)] = std::move(timeline);
    }
    costs_[id] = cost;
    return cost;
  }

  void AddOps(const proto::ScheduleComputation& computation,
              const proto::ComputationSchedule& schedule,
              const std::unordered_map<int64_t, int>& inner, Timeline* timeline) const {
    for (const auto& op : schedule.instructions()) {
      const ScheduleInstruction* instruction = Find(computation.id(), op.id());
      if (instruction == nullptr) continue;
      ScheduledOp scheduled;
      scheduled.name = instruction->name();
      scheduled.opcode = instruction->opcode();
      scheduled.op_name = instruction->metadata().op_name();
      scheduled.start_ms = op.start_timestamp_cycles() * to_ms_;
      scheduled.end_ms = op.end_timestamp_cycles() * to_ms_;
      const auto called = inner.find(op.id());
      if (called != inner.end()) scheduled.inner = called->second;
      timeline->ops.push_back(std::move(scheduled));
    }
    std::ranges::stable_sort(timeline->ops, {}, &ScheduledOp::start_ms);
  }

  void AddTransfers(const proto::ScheduleComputation& computation, const Timeline& timeline,
                    int64_t trips) {
    std::map<std::string, const ScheduledOp*> by_name;
    for (const ScheduledOp& op : timeline.ops) by_name[op.name] = &op;
    for (const ScheduledOp& done : timeline.ops) {
      if (!done.opcode.ends_with("-done")) continue;
      const ScheduledOp* start = StartOf(computation, done.name, by_name);
      if (start == nullptr) continue;
      AsyncTransfer transfer;
      transfer.name = start->name;
      transfer.kind = TransferKind(start->name);
      transfer.op_name = start->op_name;
      transfer.trips = trips;
      const auto n = static_cast<double>(trips);
      transfer.window_ms = n * (done.start_ms - start->end_ms);
      for (const ScheduledOp& op : timeline.ops) {
        if (op.start_ms < start->end_ms || op.end_ms > done.start_ms) continue;
        if (op.opcode.ends_with("-start") || op.opcode.ends_with("-done")) continue;
        transfer.hidden_ms += n * (op.end_ms - op.start_ms);
      }
      out_.transfers.push_back(std::move(transfer));
    }
  }

  // The start that a done waits for, past updates.
  const ScheduledOp* StartOf(const proto::ScheduleComputation& computation, const std::string& done,
                             const std::map<std::string, const ScheduledOp*>& by_name) const {
    const ScheduleInstruction* instruction = nullptr;
    for (const ScheduleInstruction& candidate : computation.instructions()) {
      if (candidate.name() == done) instruction = &candidate;
    }
    while (instruction != nullptr && !instruction->opcode().ends_with("-start")) {
      if (instruction->operand_ids_size() == 0) return nullptr;
      instruction = Find(computation.id(), instruction->operand_ids(0));
    }
    if (instruction == nullptr) return nullptr;
    const auto found = by_name.find(instruction->name());
    return found == by_name.end() ? nullptr : found->second;
  }

  std::map<std::string, double> final_cycles_;
  std::unordered_map<int64_t, const proto::ScheduleComputation*> computations_;
  std::map<std::pair<int64_t, int64_t>, const ScheduleInstruction*> instructions_;
  std::unordered_map<int64_t, const proto::ComputationSchedule*> schedules_;
  int64_t entry_ = -1;
  double to_ms_ = 0;
  std::unordered_map<int64_t, Cost> costs_;
  std::map<std::string, double> custom_calls_;  // cycles of all executions, by target
  std::set<std::string> unknown_;
  Schedule out_;
};

// The cycles that the compiler estimates for one execution of a computation and what it runs;
// adds those of custom calls, of `trips` executions, by target. Loops whose trips cannot be told
// count as one, and are told in `unknown`.
double EstimatedCycles(const Module& module, const std::string& computation, double trips,
                       std::map<std::string, double>* custom_calls,
                       std::vector<std::string>* unknown) {
  const auto found = module.computations.find(computation);
  if (found == module.computations.end()) return 0;
  double cycles = 0;
  for (const Instruction& instruction : found->second) {
    const auto called = [&](const char* key, double times) {
      for (const std::string& name : Names(Attribute(instruction.rest, key))) {
        cycles += times * EstimatedCycles(module, name, trips * times, custom_calls, unknown);
      }
    };
    if (instruction.opcode == "while") {
      const auto count = TripCount(module, found->second, instruction);
      if (!count) unknown->push_back(instruction.name);
      called("body", static_cast<double>(count.value_or(1)));
    } else if (instruction.opcode == "call") {
      called("to_apply", 1);
    } else {
      const double own = OwnCycles(instruction);
      cycles += own;
      if (instruction.opcode == "custom-call") {
        std::string target(Attribute(instruction.rest, "custom_call_target"));
        std::erase(target, '"');
        (*custom_calls)[target.substr(0, target.find(','))] += trips * own;
      }
    }
  }
  return cycles;
}

// Of a program without asynchronous ops.
Schedule Unscheduled(std::string_view final_hlo, double cycles_per_us) {
  const Module module = ParseModule(final_hlo);
  Schedule schedule;
  std::map<std::string, double> custom_calls;
  const double cycles = EstimatedCycles(module, module.entry, 1, &custom_calls, &schedule.unknown);
  schedule.modelled_ms = schedule.timeline_ms = 1e-3 * cycles / cycles_per_us;
  for (const auto& [target, of_target] : custom_calls) {
    schedule.custom_calls.emplace_back(target, 1e-3 * of_target / cycles_per_us);
  }
  return schedule;
}

}  // namespace

absl::StatusOr<Schedule> ParseSchedule(std::string_view dump, std::string_view final_hlo,
                                       double cycles_per_us) {
  if (dump.empty() && !final_hlo.empty() && cycles_per_us > 0) {
    return Unscheduled(final_hlo, cycles_per_us);
  }
  MW_ASSIGN_OR_RETURN(const proto::ScheduleDump parsed, ParseText(dump));
  return Reader(parsed, final_hlo).Read();
}

}  // namespace mw::hlo
