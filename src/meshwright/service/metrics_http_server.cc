#include "meshwright/service/metrics_http_server.h"

#include <fmt/format.h>
#include <httplib.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

namespace mw::service {
namespace {

constexpr int kThreads = 2;
constexpr time_t kPatienceSeconds = 5;
// A GET has no body.
constexpr size_t kMostBodyBytes = 1024;

}  // namespace

struct MetricsHttpServer::Impl {
  httplib::Server server;
  std::function<std::string()> page;
  int port = 0;
  std::atomic<bool> ended = false;
  std::thread thread;
};

MetricsHttpServer::MetricsHttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

absl::StatusOr<std::unique_ptr<MetricsHttpServer>> MetricsHttpServer::Start(
    const std::string& host, int port, std::function<std::string()> page) {
  auto impl = std::make_unique<Impl>();
  impl->page = std::move(page);
  httplib::Server& server = impl->server;
  server.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
  server.set_read_timeout(kPatienceSeconds);
  server.set_write_timeout(kPatienceSeconds);
  server.set_keep_alive_timeout(1);
  server.set_payload_max_length(kMostBodyBytes);
  // The library's own is SO_REUSEPORT, with which two servers share a port unawares.
  server.set_socket_options([](socket_t socket) {
    const int yes = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  });
  server.Get("/metrics", [impl = impl.get()](const httplib::Request&, httplib::Response& reply) {
    reply.set_content(impl->page(), "text/plain; version=0.0.4; charset=utf-8");
  });
  if (port == 0) {
    impl->port = server.bind_to_any_port(host.c_str());
  } else {
    impl->port = server.bind_to_port(host.c_str(), port) ? port : -1;
  }
  if (impl->port <= 0) {
    return absl::UnavailableError(fmt::format(
        "cannot listen for readers of metrics on {}:{}: is it in use, or not an address "
        "of this machine?",
        host, port));
  }
  impl->thread = std::thread([impl = impl.get()] {
    impl->server.listen_after_bind();
    impl->ended = true;
  });
  // Stopping a server that does not run yet would be lost.
  while (!server.is_running() && !impl->ended) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return std::unique_ptr<MetricsHttpServer>(new MetricsHttpServer(std::move(impl)));
}

MetricsHttpServer::~MetricsHttpServer() {
  impl_->server.stop();
  impl_->thread.join();
}

int MetricsHttpServer::port() const { return impl_->port; }

}  // namespace mw::service
