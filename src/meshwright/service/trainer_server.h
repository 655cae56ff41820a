// TrainerServer: listens for calls on a TrainerWorker, and for readers of its metrics.
#ifndef MESHWRIGHT_SERVICE_TRAINER_SERVER_H_
#define MESHWRIGHT_SERVICE_TRAINER_SERVER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/service/trainer_worker.h"

namespace mw::service {

struct ServerOptions {
  std::string listen = "127.0.0.1:0";  // HOST:PORT; port 0 = one that is free
  // Files in PEM. A certificate and its key; with `tls_ca` callers need a certificate of it.
  std::string tls_cert;
  std::string tls_key;
  std::string tls_ca;
  std::string token_file;  // see TrainerServiceOptions::token
  // Whether it may listen beyond this machine without TLS or without a token.
  bool insecure = false;
  int64_t max_message_mib = 64;
  int64_t max_concurrent = 16;
  std::string metrics_listen;  // HOST:PORT of Prometheus metrics over plain HTTP; "" = none
  std::string version;         // of the program

  // Errors: InvalidArgument for an address that is none, for one beyond this machine without TLS
  // and token, and for TLS files of which one is missing.
  absl::Status Validate() const;
};

// HOST:PORT, or [HOST]:PORT for IPv6.
struct ListenAddress {
  std::string host;
  int port = 0;

  // Errors: InvalidArgument naming `flag`.
  static absl::StatusOr<ListenAddress> Parse(const std::string& flag, const std::string& text);
  // Whether only this machine can reach it: localhost, 127.0.0.0/8 or ::1.
  bool IsLoopback() const;
  std::string ToString() const;
};

class TrainerServer {
 public:
  // Begins to answer: before the worker's Initialize with what state it is in.
  // `worker` must outlive the server.
  // Errors: as ServerOptions::Validate; NotFound and InvalidArgument for files; Unavailable for an
  // address that cannot be listened on.
  static absl::StatusOr<std::unique_ptr<TrainerServer>> Start(TrainerWorker* worker,
                                                              const ServerOptions& options);
  // As Stop.
  ~TrainerServer();
  TrainerServer(const TrainerServer&) = delete;
  TrainerServer& operator=(const TrainerServer&) = delete;

  int port() const;
  int metrics_port() const;  // 0 without metrics_listen

  // What grpc.health.v1 says of meshwright.v1.TrainerWorker and of the server as a whole.
  void SetServing(bool serving);
  // Takes no further calls, and gives replies that are being sent and streams this long.
  // REQUIRES: the worker is drained, so that no call waits for it.
  void Stop(double grace_s = 5);

  // The page of metrics_listen, in Prometheus' text format.
  std::string MetricsPage() const;

 private:
  class Impl;
  explicit TrainerServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace mw::service

#endif  // MESHWRIGHT_SERVICE_TRAINER_SERVER_H_
