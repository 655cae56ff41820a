#include "meshwright/service/trainer_server.h"

#include <fmt/format.h>
#include <grpcpp/ext/health_check_service_server_builder_option.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/support/server_interceptor.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <chrono>
#include <utility>
#include <vector>

#include "meshwright/base/excerpt.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/io/file_util.h"
#include "meshwright/service/metrics_http_server.h"
#include "meshwright/service/metrics_page.h"
#include "meshwright/service/trainer_service.h"

namespace mw::service {
namespace {

constexpr size_t kMostTokenBytes = 4096;
// A peer that does not answer for so long is gone.
constexpr int kKeepaliveMs = 60'000;
constexpr int kKeepaliveTimeoutMs = 20'000;
// For the last bytes of replies whose calls have ended.
constexpr std::chrono::milliseconds kFlush(500);

// gRPC calls a message that it cannot parse an internal error (GenericDeserialize of
// grpcpp/impl/codegen/proto_utils.h, without a text); it is the caller's.
class MalformedIsInvalid final : public grpc::experimental::Interceptor {
 public:
  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    using grpc::experimental::InterceptionHookPoints;
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      const grpc::Status status = methods->GetSendStatus();
      // Ours always have a text.
      if (status.error_code() == grpc::StatusCode::INTERNAL && status.error_message().empty()) {
        methods->ModifySendStatus(
            {grpc::StatusCode::INVALID_ARGUMENT, "the request is no message of this call's type"});
      }
    }
    methods->Proceed();
  }
};

class MalformedIsInvalidFactory final
    : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo*) override {
    return new MalformedIsInvalid();
  }
};

absl::StatusOr<std::string> ReadPem(const char* flag, const std::string& path) {
  MW_ASSIGN_OR_RETURN(std::string text, io::ReadFile(path));
  if (text.find("-----BEGIN ") == std::string::npos) {
    return absl::InvalidArgumentError(fmt::format("{} {} is no PEM file", flag, path));
  }
  return text;
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> Credentials(const ServerOptions& options) {
  if (options.tls_cert.empty()) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions ssl(
      options.tls_ca.empty() ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                             : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  grpc::SslServerCredentialsOptions::PemKeyCertPair pair;
  MW_ASSIGN_OR_RETURN(pair.cert_chain, ReadPem("--tls-cert", options.tls_cert));
  MW_ASSIGN_OR_RETURN(pair.private_key, ReadPem("--tls-key", options.tls_key));
  ssl.pem_key_cert_pairs.push_back(pair);
  if (!options.tls_ca.empty()) {
    MW_ASSIGN_OR_RETURN(ssl.pem_root_certs, ReadPem("--tls-ca", options.tls_ca));
  }
  return grpc::SslServerCredentials(ssl);
}

absl::StatusOr<std::string> ReadToken(const std::string& path) {
  if (path.empty()) return std::string();
  MW_ASSIGN_OR_RETURN(std::string token, io::ReadFile(path));
  while (!token.empty() && std::isspace(static_cast<unsigned char>(token.back())) != 0) {
    token.pop_back();
  }
  const auto is_visible = [](unsigned char c) { return c > ' ' && c < 0x7f; };
  if (token.empty() || token.size() > kMostTokenBytes ||
      !std::all_of(token.begin(), token.end(), is_visible)) {
    return absl::InvalidArgumentError(
        fmt::format("--token-file {} must hold one word of 1 to {} visible ASCII characters", path,
                    kMostTokenBytes));
  }
  return token;
}

}  // namespace

absl::StatusOr<ListenAddress> ListenAddress::Parse(const std::string& flag,
                                                   const std::string& text) {
  ListenAddress address;
  const size_t colon = text.rfind(':');
  const char* const end = text.data() + text.size();
  bool valid = colon != std::string::npos && colon > 0;
  if (valid) {
    address.host = text.substr(0, colon);
    const bool bracketed = address.host.front() == '[' && address.host.back() == ']';
    if (bracketed) address.host = address.host.substr(1, address.host.size() - 2);
    valid = !address.host.empty() && bracketed == (address.host.find(':') != std::string::npos);
    const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, address.port);
    valid =
        valid && error == std::errc() && stop == end && address.port >= 0 && address.port <= 65535;
  }
  if (!valid) {
    return absl::InvalidArgumentError(fmt::format(
        "{} is '{}'; it must be HOST:PORT, such as 127.0.0.1:50051, with port 0 for one "
        "that is free",
        flag, Excerpt(text)));
  }
  return address;
}

bool ListenAddress::IsLoopback() const {
  if (host == "localhost" || host == "::1") return true;
  // All of 127.0.0.0/8, and no name that merely begins so.
  return host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string::npos;
}

std::string ListenAddress::ToString() const {
  const bool ipv6 = host.find(':') != std::string::npos;
  return ipv6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

absl::Status ServerOptions::Validate() const {
  MW_ASSIGN_OR_RETURN(const ListenAddress address, ListenAddress::Parse("--listen", listen));
  if (tls_cert.empty() != tls_key.empty()) {
    return absl::InvalidArgumentError(fmt::format("--tls-{} needs --tls-{} too",
                                                  tls_cert.empty() ? "key" : "cert",
                                                  tls_cert.empty() ? "cert" : "key"));
  }
  if (!tls_ca.empty() && tls_cert.empty()) {
    return absl::InvalidArgumentError("--tls-ca needs --tls-cert and --tls-key too");
  }
  if (!address.IsLoopback() && !insecure && (tls_cert.empty() || token_file.empty())) {
    return absl::InvalidArgumentError(fmt::format(
        "--listen {} can be reached from other machines, and without {} anybody there could train "
        "and read the weights: give --tls-cert, --tls-key and --token-file, or --insecure",
        listen, tls_cert.empty() ? "TLS" : "a token"));
  }
  if (!metrics_listen.empty()) {
    MW_ASSIGN_OR_RETURN(const ListenAddress metrics,
                        ListenAddress::Parse("--metrics-listen", metrics_listen));
    if (!metrics.IsLoopback() && !insecure) {
      return absl::InvalidArgumentError(fmt::format(
          "--metrics-listen {} can be reached from other machines, and the metrics are plain HTTP "
          "without a token: listen on 127.0.0.1, or give --insecure",
          metrics_listen));
    }
  }
  if (max_message_mib < 1 || max_message_mib > 2047) {
    return absl::InvalidArgumentError(
        fmt::format("--max-message-mib is {}; it can be 1 to 2047", max_message_mib));
  }
  if (max_concurrent < 1 || max_concurrent > 1024) {
    return absl::InvalidArgumentError(
        fmt::format("--max-concurrent is {}; it can be 1 to 1024", max_concurrent));
  }
  return absl::OkStatus();
}

class TrainerServer::Impl {
 public:
  TrainerWorker* worker = nullptr;
  std::unique_ptr<TrainerService> service;
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<MetricsHttpServer> metrics;
  int port = 0;

  absl::Status Start(const ServerOptions& options) {
    MW_RETURN_IF_ERROR(options.Validate());
    MW_ASSIGN_OR_RETURN(const ListenAddress address,
                        ListenAddress::Parse("--listen", options.listen));
    TrainerServiceOptions service_options;
    MW_ASSIGN_OR_RETURN(service_options.token, ReadToken(options.token_file));
    service_options.max_concurrent = options.max_concurrent;
    service_options.version = options.version;
    MW_ASSIGN_OR_RETURN(const auto credentials, Credentials(options));
    service = std::make_unique<TrainerService>(worker, service_options);

    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address.ToString(), credentials, &port);
    builder.RegisterService(service.get());
    const int max_message_bytes = static_cast<int>(options.max_message_mib) << 20;
    builder.SetMaxReceiveMessageSize(max_message_bytes);
    builder.SetMaxSendMessageSize(max_message_bytes);
    // Or a second server would share the port and get some of the calls.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
    std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>>
        interceptors;
    interceptors.push_back(std::make_unique<MalformedIsInvalidFactory>());
    builder.experimental().SetInterceptorCreators(std::move(interceptors));
    server = builder.BuildAndStart();
    if (server == nullptr || port <= 0) {
      return absl::UnavailableError(fmt::format(
          "cannot listen on {}: is the port in use, the address not of this machine, or a TLS file "
          "damaged?",
          options.listen));
    }
    SetServing(false);
    if (options.metrics_listen.empty()) return absl::OkStatus();
    MW_ASSIGN_OR_RETURN(const ListenAddress at,
                        ListenAddress::Parse("--metrics-listen", options.metrics_listen));
    MW_ASSIGN_OR_RETURN(metrics,
                        MetricsHttpServer::Start(at.host, at.port, [this] { return Page(); }));
    return absl::OkStatus();
  }

  void SetServing(bool serving) const {
    grpc::HealthCheckServiceInterface* const health = server->GetHealthCheckService();
    health->SetServingStatus(serving);
    health->SetServingStatus("meshwright.v1.TrainerWorker", serving);
  }

  std::string Page() const {
    worker->PollRecords();
    return mw::service::MetricsPage(worker->health(), worker->records().Latest(),
                                    service->counters().totals());
  }
};

TrainerServer::TrainerServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

absl::StatusOr<std::unique_ptr<TrainerServer>> TrainerServer::Start(TrainerWorker* worker,
                                                                    const ServerOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->worker = worker;
  const absl::Status status = impl->Start(options);
  std::unique_ptr<TrainerServer> server(new TrainerServer(std::move(impl)));
  if (!status.ok()) return status;
  return server;
}

TrainerServer::~TrainerServer() { Stop(); }

int TrainerServer::port() const { return impl_->port; }
int TrainerServer::metrics_port() const {
  return impl_->metrics == nullptr ? 0 : impl_->metrics->port();
}

void TrainerServer::SetServing(bool serving) { impl_->SetServing(serving); }

void TrainerServer::Stop(double grace_s) {
  impl_->metrics.reset();
  if (impl_->server == nullptr) return;
  impl_->service->counters().AwaitNone(
      std::chrono::milliseconds(static_cast<int64_t>(grace_s * 1000)));
  // Callers that are connected and silent may take seconds to notice; replies are on their way.
  impl_->server->Shutdown(std::chrono::system_clock::now() + kFlush);
  impl_->server->Wait();
  impl_->server.reset();
}

std::string TrainerServer::MetricsPage() const { return impl_->Page(); }

}  // namespace mw::service
