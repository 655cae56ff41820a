// TrainerService: a TrainerWorker's calls over gRPC, as proto/meshwright/v1/trainer.proto says.
#ifndef MESHWRIGHT_SERVICE_TRAINER_SERVICE_H_
#define MESHWRIGHT_SERVICE_TRAINER_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "meshwright/service/call_counters.h"
#include "meshwright/service/trainer_worker.h"
#include "proto/meshwright/v1/trainer.grpc.pb.h"

namespace mw::service {

struct TrainerServiceOptions {
  // What callers must send as "authorization: Bearer TOKEN"; "" = nothing.
  std::string token;
  // Calls under way at a time, those included that wait for their turn and those that stream;
  // Health does not count.
  int64_t max_concurrent = 16;
  std::string version;  // of the program
};

// The two number their codes alike. A message that is longer than a header may be is abridged.
grpc::Status ToGrpc(const absl::Status& status);

// Every method of it says in docs/serve.md#status-codes what its codes mean.
class TrainerService final : public meshwright::v1::TrainerWorker::Service {
 public:
  // `worker` must outlive the service.
  TrainerService(TrainerWorker* worker, TrainerServiceOptions options)
      : worker_(worker), options_(std::move(options)) {}

  grpc::Status FwdBwd(grpc::ServerContext* context, const meshwright::v1::FwdBwdRequest* request,
                      meshwright::v1::StepReply* reply) override;
  grpc::Status StageFwdBwd(grpc::ServerContext* context,
                           const meshwright::v1::StageFwdBwdRequest* request,
                           meshwright::v1::StageFwdBwdReply* reply) override;
  grpc::Status FwdBwdStaged(grpc::ServerContext* context,
                            const meshwright::v1::FwdBwdStagedRequest* request,
                            meshwright::v1::StepReply* reply) override;
  grpc::Status Update(grpc::ServerContext* context, const meshwright::v1::UpdateRequest* request,
                      meshwright::v1::StepReply* reply) override;
  grpc::Status ApplyDeferredUpdate(grpc::ServerContext* context,
                                   const meshwright::v1::ApplyDeferredUpdateRequest* request,
                                   meshwright::v1::StepReply* reply) override;
  grpc::Status Eval(grpc::ServerContext* context, const meshwright::v1::EvalRequest* request,
                    meshwright::v1::EvalReply* reply) override;
  grpc::Status Score(grpc::ServerContext* context, const meshwright::v1::ScoreRequest* request,
                     meshwright::v1::ScoreReply* reply) override;
  grpc::Status Save(grpc::ServerContext* context, const meshwright::v1::SaveRequest* request,
                    meshwright::v1::SaveReply* reply) override;
  grpc::Status Restore(grpc::ServerContext* context, const meshwright::v1::RestoreRequest* request,
                       meshwright::v1::RestoreReply* reply) override;
  grpc::Status GetWeights(grpc::ServerContext* context,
                          const meshwright::v1::GetWeightsRequest* request,
                          grpc::ServerWriter<meshwright::v1::WeightsChunk>* writer) override;
  grpc::Status Metrics(grpc::ServerContext* context, const meshwright::v1::MetricsRequest* request,
                       grpc::ServerWriter<meshwright::v1::MetricsRecord>* writer) override;
  grpc::Status Health(grpc::ServerContext* context, const meshwright::v1::HealthRequest* request,
                      meshwright::v1::HealthReply* reply) override;

  CallCounters& counters() { return counters_; }

 private:
  // Checks the token and the number of calls, does `run` and counts how that ended.
  template <typename Run>
  grpc::Status Handle(grpc::ServerContext* context, const char* method, const Run& run);
  bool IsAuthorized(const grpc::ServerContext& context) const;

  TrainerWorker* worker_;
  TrainerServiceOptions options_;
  CallCounters counters_;
};

}  // namespace mw::service

#endif  // MESHWRIGHT_SERVICE_TRAINER_SERVICE_H_
