#include "meshwright/service/trainer_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "meshwright/base/excerpt.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/service/reply_memory.h"
#include "meshwright/service/tensor_message.h"

namespace mw::service {
namespace {

namespace v1 = meshwright::v1;

// A status travels in HTTP/2 headers, of which 8 KiB are taken.
constexpr size_t kMostMessageBytes = 2048;
constexpr int64_t kChunkBytes = int64_t{1} << 20;
constexpr int64_t kLeastChunkBytes = int64_t{4} << 10;
constexpr int64_t kMostChunkBytes = int64_t{4} << 20;
// How often a stream that waits for records looks for those that nobody's call has taken.
constexpr std::chrono::milliseconds kRecordPoll(100);

enum class RequestId { kRequired, kIgnored };

absl::StatusOr<Call> ToCall(const grpc::ServerContext& context, const v1::CallHeader& header,
                            RequestId id) {
  Call call;
  if (id == RequestId::kRequired) {
    MW_RETURN_IF_ERROR(ReplyMemory::CheckId(header.request_id()));
    call.request_id = header.request_id();
  }
  if (header.has_policy_version()) call.policy_version = header.policy_version();
  call.limits.deadline = context.deadline();
  call.limits.cancelled = [&context] { return context.IsCancelled(); };
  return call;
}

void ToMessage(const WorkerPosition& position, v1::WorkerPosition& message) {
  message.set_policy_version(position.policy_version);
  message.set_num_micro_batches(position.num_micro_batches);
  message.set_update_deferred(position.update_deferred);
  message.set_repeated_call(position.repeated_call);
}

void ToMessage(const train::MetricRecord& record, v1::MetricsRecord& message) {
  message.set_step(record.step);
  for (const auto& [name, value] : record.values) (*message.mutable_values())[name] = value;
}

void ToMessage(const StepReply& reply, v1::StepReply& message) {
  ToMessage(reply.position, *message.mutable_position());
  if (reply.metrics) ToMessage(*reply.metrics, *message.mutable_metrics());
}

// Of a request that has the three fields.
template <typename Request>
AfterFwdBwd ToAfter(const Request& request) {
  return {request.apply_optimizer(), request.wait_for_update(), request.defer_update()};
}

bool SameSecret(std::string_view a, std::string_view b) {
  // In time that depends on the lengths alone.
  unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned char>(a[i]) ^
                  static_cast<unsigned char>(b.empty() ? 0 : b[i % b.size()]);
  }
  return difference == 0;
}

v1::HealthReply::State ToMessage(WorkerState state) {
  switch (state) {
    case WorkerState::kPending:
      return v1::HealthReply::PENDING;
    case WorkerState::kInitializing:
      return v1::HealthReply::INITIALIZING;
    case WorkerState::kReady:
      return v1::HealthReply::READY;
    case WorkerState::kCompiling:
      return v1::HealthReply::COMPILING;
    case WorkerState::kSyncing:
      return v1::HealthReply::SYNCING;
    case WorkerState::kDraining:
      return v1::HealthReply::DRAINING;
    case WorkerState::kStopped:
      return v1::HealthReply::STOPPED;
    case WorkerState::kError:
      return v1::HealthReply::ERROR;
  }
  return v1::HealthReply::STATE_UNSPECIFIED;
}

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(status.code()),
          Abridged(std::string(status.message()), kMostMessageBytes)};
}

bool TrainerService::IsAuthorized(const grpc::ServerContext& context) const {
  if (options_.token.empty()) return true;
  const auto [begin, end] = context.client_metadata().equal_range("authorization");
  return std::any_of(begin, end, [&](const auto& entry) {
    return SameSecret({entry.second.data(), entry.second.size()}, "Bearer " + options_.token);
  });
}

template <typename Run>
grpc::Status TrainerService::Handle(grpc::ServerContext* context, const char* method,
                                    const Run& run) {
  absl::Status status;
  if (!IsAuthorized(*context)) {
    status = absl::UnauthenticatedError(
        "the call has no \"authorization: Bearer TOKEN\" with the worker's token");
  } else if (!counters_.Begin(options_.max_concurrent)) {
    status = absl::ResourceExhaustedError(
        fmt::format("{} calls are under way, the most that are taken: try again when one of them "
                    "has ended",
                    options_.max_concurrent));
  } else {
    status = run();
    counters_.End();
  }
  counters_.Count(method, absl::StatusCodeToString(status.code()));
  return ToGrpc(status);
}

grpc::Status TrainerService::FwdBwd(grpc::ServerContext* context, const v1::FwdBwdRequest* request,
                                    v1::StepReply* reply) {
  return Handle(context, "FwdBwd", [&]() -> absl::Status {
    MW_ASSIGN_OR_RETURN(const Call call, ToCall(*context, request->header(), RequestId::kRequired));
    MW_ASSIGN_OR_RETURN(const auto tensors, ToTensors(request->batch()));
    MW_ASSIGN_OR_RETURN(const data::Batch batch, worker_->MakeBatch(tensors));
    MW_ASSIGN_OR_RETURN(const StepReply done, worker_->FwdBwd(batch, ToAfter(*request), call));
    ToMessage(done, *reply);
    return absl::OkStatus();
  });
}

grpc::Status TrainerService::StageFwdBwd(grpc::ServerContext* context,
                                         const v1::StageFwdBwdRequest* request,
                                         v1::StageFwdBwdReply* reply) {
  return Handle(context, "StageFwdBwd", [&]() -> absl::Status {
    MW_ASSIGN_OR_RETURN(const Call call, ToCall(*context, request->header(), RequestId::kRequired));
    MW_ASSIGN_OR_RETURN(const auto tensors, ToTensors(request->batch()));
    MW_ASSIGN_OR_RETURN(const data::Batch batch, worker_->MakeBatch(tensors));
    MW_ASSIGN_OR_RETURN(const StageReply done, worker_->StageFwdBwd(batch, call));
    ToMessage(done.position, *reply->mutable_position());
    reply->set_handle(done.handle);
    reply->set_on_devices(done.on_devices);
    return absl::OkStatus();
  });
}

grpc::Status TrainerService::FwdBwdStaged(grpc::ServerContext* context,
                                          const v1::FwdBwdStagedRequest* request,
                                          v1::StepReply* reply) {
  return Handle(context, "FwdBwdStaged", [&]() -> absl::Status {
    MW_ASSIGN_OR_RETURN(const Call call, ToCall(*context, request->header(), RequestId::kRequired));
    MW_ASSIGN_OR_RETURN(const StepReply done,
                        worker_->FwdBwdStaged(request->handle(), ToAfter(*request), call));
    ToMessage(done, *reply);
    return absl::OkStatus();
  });
}

grpc::Status TrainerService::Update(grpc::ServerContext* context, const v1::UpdateRequest* request,
                                    v1::StepReply* reply) {
  return Handle(context, "Update", [&]() -> absl::Status {
    MW_ASSIGN_OR_RETURN(const Call call, ToCall(*context, request->header(), RequestId::kRequired));
    MW_ASSIGN_OR_RETURN(const StepReply done, worker_->Update(request->wait_for_update(), call));
    ToMessage(done, *reply);
    return absl::OkStatus();
  });
}

grpc::Status TrainerService::ApplyDeferredUpdate(grpc::ServerContext* context,
                                                 const v1::ApplyDeferredUpdateRequest* request,
                                                 v1::StepReply* reply) {
  return Handle(context, "ApplyDeferredUpdate", [&]() -> absl::Status {
    MW_ASSIGN_OR_RETURN(const Call call, ToCall(*context, request->header(), RequestId::kRequired));
    MW_ASSIGN_OR_RETURN(const StepReply done,
                        worker_->ApplyDeferredUpdate(request->wait_for_update(), call));
    ToMessage(done, *reply);
    return absl::OkStatus();
  });
}

grpc::Status TrainerService::Eval(grpc::ServerContext* context, const v1::EvalRequest* request,
                                  v1::EvalReply* reply) {
  return Handle(context, "Eval", [&]() -> absl::Status {
    MW_ASSIGN_OR_RETURN(const Call call, ToCall(*context, request->header(), RequestId::kIgnored));
    MW_ASSIGN_OR_RETURN(const auto tensors, ToTensors(request->batch()));
    MW_ASSIGN_OR_RETURN(const data::Batch batch, worker_->MakeBatch(tensors));
    MW_ASSIGN_OR_RETURN(const EvalReply done, worker_->Eval(batch, call));
    ToMessage(done.position, *reply->mutable_position());
    reply->set_loss(done.metrics.Loss());
    reply->set_loss_sum(done.metrics.loss.sum());
    reply->set_denominator(done.metrics.loss.denominator());
    for (const auto& [name, value] : done.metrics.ToRecord(done.position.policy_version).values) {
      (*reply->mutable_metrics())[name] = value;
    }
    return absl::OkStatus();
  });
}

grpc::Status TrainerService::Score(grpc::ServerContext* context, const v1::ScoreRequest* request,
                                   v1::ScoreReply* reply) {
  return Handle(context, "Score", [&]() -> absl::Status {
    MW_ASSIGN_OR_RETURN(const Call call, ToCall(*context, request->header(), RequestId::kIgnored));
    MW_ASSIGN_OR_RETURN(const auto tensors, ToTensors(request->batch()));
    MW_ASSIGN_OR_RETURN(const data::Batch batch, worker_->MakeBatch(tensors, /*for_loss=*/false));
    train::ScoreOptions options;
    if (request->temperature() != 0) options.temperature = request->temperature();
    options.entropy = request->entropy();
    options.top_k = request->top_k();
    MW_ASSIGN_OR_RETURN(const ScoreReply done, worker_->Score(batch, options, call));
    ToMessage(done.position, *reply->mutable_position());
    ToMessage(done.scores.log_probs, *reply->mutable_log_probs());
    if (options.entropy) ToMessage(done.scores.entropy, *reply->mutable_entropy());
    if (options.top_k > 0) {
      ToMessage(done.scores.top_ids, *reply->mutable_top_ids());
      ToMessage(done.scores.top_log_probs, *reply->mutable_top_log_probs());
    }
    return absl::OkStatus();
  });
}

grpc::Status TrainerService::Save(grpc::ServerContext* context, const v1::SaveRequest* request,
                                  v1::SaveReply* reply) {
  return Handle(context, "Save", [&]() -> absl::Status {
    MW_ASSIGN_OR_RETURN(const Call call, ToCall(*context, request->header(), RequestId::kRequired));
    const std::map<std::string, std::string> metadata(request->metadata().begin(),
                                                      request->metadata().end());
    MW_ASSIGN_OR_RETURN(const SaveReply done, worker_->Save(metadata, call));
    ToMessage(done.position, *reply->mutable_position());
    reply->set_folder(done.folder);
    return absl::OkStatus();
  });
}

grpc::Status TrainerService::Restore(grpc::ServerContext* context,
                                     const v1::RestoreRequest* request, v1::RestoreReply* reply) {
  return Handle(context, "Restore", [&]() -> absl::Status {
    MW_ASSIGN_OR_RETURN(const Call call, ToCall(*context, request->header(), RequestId::kRequired));
    const std::optional<int64_t> step =
        request->has_step() ? std::optional<int64_t>(request->step()) : std::nullopt;
    MW_ASSIGN_OR_RETURN(const RestoreReply done, worker_->Restore(step, call));
    ToMessage(done.position, *reply->mutable_position());
    for (const auto& [key, value] : done.metadata) (*reply->mutable_metadata())[key] = value;
    return absl::OkStatus();
  });
}

grpc::Status TrainerService::GetWeights(grpc::ServerContext* context,
                                        const v1::GetWeightsRequest* request,
                                        grpc::ServerWriter<v1::WeightsChunk>* writer) {
  return Handle(context, "GetWeights", [&]() -> absl::Status {
    MW_ASSIGN_OR_RETURN(const Call call, ToCall(*context, request->header(), RequestId::kIgnored));
    const int64_t chunk_bytes = request->chunk_bytes() == 0 ? kChunkBytes : request->chunk_bytes();
    if (chunk_bytes < kLeastChunkBytes || chunk_bytes > kMostChunkBytes) {
      return absl::InvalidArgumentError(fmt::format(
          "chunk_bytes is {}; it can be {} to {}", chunk_bytes, kLeastChunkBytes, kMostChunkBytes));
    }
    std::optional<DType> dtype;
    if (!request->dtype().empty()) {
      dtype = ParseDType(request->dtype());
      if (!dtype) {
        return absl::InvalidArgumentError(
            fmt::format("dtype \"{}\" is unknown; it can be f32, bf16 or f16, or left out",
                        Excerpt(request->dtype())));
      }
    }
    MW_ASSIGN_OR_RETURN(const auto file, worker_->Weights(dtype, call));
    v1::WeightsChunk chunk;
    chunk.set_policy_version(file->policy_version());
    chunk.set_total_bytes(file->num_bytes());
    for (int64_t offset = 0; offset < file->num_bytes(); offset += chunk_bytes) {
      chunk.set_offset(offset);
      chunk.set_data(file->Read(offset, chunk_bytes));
      // False: the caller is gone, or its deadline is over.
      if (!writer->Write(chunk)) {
        return absl::CancelledError("the reader of the weights went away");
      }
    }
    return absl::OkStatus();
  });
}

grpc::Status TrainerService::Metrics(grpc::ServerContext* context,
                                     const v1::MetricsRequest* request,
                                     grpc::ServerWriter<v1::MetricsRecord>* writer) {
  return Handle(context, "Metrics", [&]() -> absl::Status {
    RecordLog& records = worker_->records();
    writer->SendInitialMetadata();  // so that a follower knows that it is one
    uint64_t next = 0;
    bool first = true;
    do {
      worker_->PollRecords();
      const auto patience = request->follow() && !first ? kRecordPoll : kRecordPoll.zero();
      const bool last = records.closed();
      for (const train::MetricRecord& record : records.Read(next, patience)) {
        if (first && record.step <= request->after_step()) continue;
        v1::MetricsRecord message;
        ToMessage(record, message);
        if (!writer->Write(message)) {
          return absl::CancelledError("the reader of the metrics went away");
        }
      }
      first = false;
      if (last) break;
    } while (request->follow() && !context->IsCancelled());
    return absl::OkStatus();
  });
}

grpc::Status TrainerService::Health(grpc::ServerContext* context, const v1::HealthRequest*,
                                    v1::HealthReply* reply) {
  // Not one of those that are counted as under way: it is answered at once.
  if (!IsAuthorized(*context)) {
    return ToGrpc(absl::UnauthenticatedError(
        "the call has no \"authorization: Bearer TOKEN\" with the worker's token"));
  }
  const WorkerHealth health = worker_->health();
  reply->set_state(ToMessage(health.state));
  reply->set_message(Abridged(health.message, kMostMessageBytes));
  ToMessage(health.position, *reply->mutable_position());
  reply->set_num_staged(static_cast<int64_t>(health.num_staged));
  reply->set_num_calls(static_cast<int64_t>(health.num_calls));
  reply->set_version(options_.version);
  return grpc::Status::OK;
}

}  // namespace mw::service
