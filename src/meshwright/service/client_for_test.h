// A caller of the service, for its tests.
#ifndef MESHWRIGHT_SERVICE_CLIENT_FOR_TEST_H_
#define MESHWRIGHT_SERVICE_CLIENT_FOR_TEST_H_

#include <fmt/format.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "meshwright/core/host_tensor.h"
#include "meshwright/service/tensor_message.h"
#include "proto/meshwright/v1/trainer.grpc.pb.h"

namespace mw::service {

namespace v1 = meshwright::v1;

inline void Fill(const std::map<std::string, HostTensor>& tensors, v1::Batch* batch) {
  for (const auto& [name, tensor] : tensors) ToMessage(tensor, (*batch->mutable_tensors())[name]);
}

// Blocking calls, each with a context of its own.
class TestClient {
 public:
  explicit TestClient(
      const std::string& address,
      std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials(),
      std::string token = "")
      : token_(std::move(token)) {
    grpc::ChannelArguments arguments;
    // Each client its own connection.
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    channel_ = grpc::CreateCustomChannel(address, credentials, arguments);
    stub_ = v1::TrainerWorker::NewStub(channel_);
  }

  std::unique_ptr<grpc::ClientContext> Context() const {
    auto context = std::make_unique<grpc::ClientContext>();
    if (!token_.empty()) context->AddMetadata("authorization", "Bearer " + token_);
    return context;
  }

  grpc::Status FwdBwd(const std::map<std::string, HostTensor>& tensors, const std::string& id,
                      v1::StepReply* reply, bool apply = false, bool wait = false,
                      bool defer = false) {
    v1::FwdBwdRequest request;
    request.mutable_header()->set_request_id(id);
    Fill(tensors, request.mutable_batch());
    request.set_apply_optimizer(apply);
    request.set_wait_for_update(wait);
    request.set_defer_update(defer);
    return stub_->FwdBwd(Context().get(), request, reply);
  }
  grpc::Status Update(const std::string& id, v1::StepReply* reply) {
    v1::UpdateRequest request;
    request.mutable_header()->set_request_id(id);
    request.set_wait_for_update(true);
    return stub_->Update(Context().get(), request, reply);
  }
  v1::HealthReply Health() {
    v1::HealthReply reply;
    const grpc::Status status = stub_->Health(Context().get(), {}, &reply);
    if (!status.ok()) reply.set_message(status.error_message());
    return reply;
  }
  // The whole file; "" where it failed.
  std::string Weights() {
    const auto context = Context();
    const auto reader = stub_->GetWeights(context.get(), {});
    v1::WeightsChunk chunk;
    std::string file;
    while (reader->Read(&chunk)) file += chunk.data();
    return reader->Finish().ok() ? file : "";
  }

  // A call of any method with any bytes.
  grpc::Status RawCall(const std::string& method, const std::string& bytes, std::string* answer) {
    grpc::GenericStub stub(channel_);
    const grpc::Slice slice(bytes);
    grpc::CompletionQueue queue;
    const auto context = Context();
    const auto call =
        stub.PrepareUnaryCall(context.get(), method, grpc::ByteBuffer(&slice, 1), &queue);
    call->StartCall();
    grpc::ByteBuffer buffer;
    grpc::Status status;
    call->Finish(&buffer, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    std::vector<grpc::Slice> slices;
    if (!status.ok() || !buffer.Dump(&slices).ok()) return status;
    for (const grpc::Slice& part : slices) {
      answer->append(reinterpret_cast<const char*>(part.begin()), part.size());
    }
    return status;
  }

  v1::TrainerWorker::Stub& stub() { return *stub_; }

 private:
  std::string token_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::TrainerWorker::Stub> stub_;
};

}  // namespace mw::service

#endif  // MESHWRIGHT_SERVICE_CLIENT_FOR_TEST_H_
