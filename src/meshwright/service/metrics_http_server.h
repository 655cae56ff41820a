// MetricsHttpServer: one page over plain HTTP, for a Prometheus that scrapes it.
#ifndef MESHWRIGHT_SERVICE_METRICS_HTTP_SERVER_H_
#define MESHWRIGHT_SERVICE_METRICS_HTTP_SERVER_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace mw::service {

// Answers GET /metrics with what `page` returns, which is called on its threads; anything else is
// refused. Two requests are answered at a time, and one that does not come to an end within
// seconds is dropped.
class MetricsHttpServer {
 public:
  // Port 0 = one that is free. Errors: Unavailable for an address that cannot be listened on.
  static absl::StatusOr<std::unique_ptr<MetricsHttpServer>> Start(
      const std::string& host, int port, std::function<std::string()> page);
  ~MetricsHttpServer();
  MetricsHttpServer(const MetricsHttpServer&) = delete;
  MetricsHttpServer& operator=(const MetricsHttpServer&) = delete;

  int port() const;

 private:
  struct Impl;
  explicit MetricsHttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace mw::service

#endif  // MESHWRIGHT_SERVICE_METRICS_HTTP_SERVER_H_
