// Who may call, and what else listens.
#include "meshwright/service/trainer_server.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "meshwright/io/file_util.h"
#include "meshwright/service/client_for_test.h"
#include "meshwright/service/metrics_page.h"
#include "meshwright/service/worker_for_test.h"

// After the others: it brings the system's macros with it.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace mw::service {
namespace {

using ::testing::HasSubstr;

std::string Message(const absl::Status& status) {
  return status.ok() ? "accepted" : std::string(status.message());
}

TEST(ServerOptionsTest, AddressesAreReadStrictly) {
  for (const char* text : {"", "host", ":80", "host:", "host:x", "host:-1", "host:65536", "::1:80",
                           "[::1]", "[host]:80", "host:80 "}) {
    EXPECT_THAT(Message(ListenAddress::Parse("--listen", text).status()), HasSubstr("HOST:PORT"))
        << text;
  }
  for (const auto& [text, loopback] : {std::pair("localhost:1", true),
                                       {"127.0.0.1:0", true},
                                       {"127.9.8.7:1", true},
                                       {"[::1]:50051", true},
                                       {"0.0.0.0:1", false},
                                       {"[::]:1", false},
                                       {"127.0.0.1.example.org:1", false},
                                       {"10.0.0.1:1", false},
                                       {"localhost.example.org:1", false}}) {
    const auto address = ListenAddress::Parse("--listen", text);
    ASSERT_TRUE(address.ok()) << address.status();
    EXPECT_EQ(address->IsLoopback(), loopback) << text;
    EXPECT_EQ(address->ToString(), text);
  }
}

TEST(ServerOptionsTest, BeyondThisMachineNeedsTlsAndAToken) {
  ServerOptions options;
  EXPECT_TRUE(options.Validate().ok());
  options.listen = "0.0.0.0:0";
  EXPECT_THAT(Message(options.Validate()), HasSubstr("without TLS"));
  options.tls_cert = options.tls_key = "file";
  EXPECT_THAT(Message(options.Validate()), HasSubstr("without a token"));
  options.token_file = "file";
  EXPECT_TRUE(options.Validate().ok());
  options.tls_cert = options.tls_key = options.token_file = "";
  options.insecure = true;
  EXPECT_TRUE(options.Validate().ok());
  options = ServerOptions();
  options.metrics_listen = "0.0.0.0:0";
  EXPECT_THAT(Message(options.Validate()), HasSubstr("plain HTTP"));
  options = ServerOptions();
  options.tls_ca = "file";
  EXPECT_THAT(Message(options.Validate()), HasSubstr("--tls-ca needs"));
}

class TrainerServerTest : public WorkerTest {
 protected:
  // A key and a certificate of localhost, made by the program that everybody has.
  struct Pair {
    std::string key, cert;
  };
  Pair MakeCertificate(const std::string& name) const {
    Pair pair = {dir_.File(name + ".key"), dir_.File(name + ".crt")};
    const std::string command = fmt::format(
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost "
        "-addext subjectAltName=DNS:localhost -keyout {} -out {} 2>{}",
        pair.key, pair.cert, dir_.File("openssl.log"));
    if (std::system(command.c_str()) != 0) {
      ADD_FAILURE() << "openssl failed: " << train::ReadText(dir_.File("openssl.log"));
    }
    return pair;
  }
  // Says whether a call is answered.
  static grpc::Status Call(TestClient client) {
    v1::HealthReply reply;
    const auto context = client.Context();
    context->set_wait_for_ready(false);
    return client.stub().Health(context.get(), {}, &reply);
  }
  // Of a plain HTTP request.
  static std::string Http(int port, const std::string& request) {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::send(fd, request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
    std::string answer;
    char buffer[4096];
    for (ssize_t n = 0; (n = ::recv(fd, buffer, sizeof(buffer), 0)) > 0;) {
      answer.append(buffer, static_cast<size_t>(n));
    }
    ::close(fd);
    return answer;
  }
};

TEST_F(TrainerServerTest, ATokenIsAskedForByEveryCall) {
  train::WriteText(dir_.File("token"), "a-secret-word\n");
  ServerOptions options;
  options.token_file = dir_.File("token");
  TrainerWorker worker(Options());
  const auto server = TrainerServer::Start(&worker, options);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string address = fmt::format("127.0.0.1:{}", (*server)->port());
  const auto with = [&](const std::string& token) {
    return TestClient(address, grpc::InsecureChannelCredentials(), token);
  };
  EXPECT_TRUE(Call(with("a-secret-word")).ok());
  for (const char* token : {"", "a-secret-wore", "a-secret-wor", "a-secret-word2", "x"}) {
    EXPECT_EQ(Call(with(token)).error_code(), grpc::StatusCode::UNAUTHENTICATED) << token;
    TestClient client = with(token);
    v1::StepReply reply;
    EXPECT_EQ(client.FwdBwd(TestTensors(0), "a", &reply).error_code(),
              grpc::StatusCode::UNAUTHENTICATED);
    EXPECT_EQ(client.Weights(), "");
  }
  TestClient known = with("a-secret-word");
  EXPECT_EQ(known.Health().state(), v1::HealthReply::PENDING);
  v1::StepReply reply;
  EXPECT_EQ(known.FwdBwd(TestTensors(0), "a", &reply).error_code(), grpc::StatusCode::UNAVAILABLE);

  for (const char* bad : {"", "\n", "two words", "b\xc3\xa4h"}) {
    train::WriteText(dir_.File("token"), bad);
    EXPECT_THAT(Message(TrainerServer::Start(&worker, options).status()), HasSubstr("one word"));
  }
}

TEST_F(TrainerServerTest, TlsLetsInThoseWhomItKnows) {
  const Pair pair = MakeCertificate("server"), other = MakeCertificate("other");
  TrainerWorker worker(Options());
  ServerOptions options;
  options.tls_cert = pair.cert;
  options.tls_key = pair.key;
  auto server = TrainerServer::Start(&worker, options);
  ASSERT_TRUE(server.ok()) << server.status();
  const auto secure = [](const Pair& trusted, const Pair* own) {
    grpc::SslCredentialsOptions ssl;
    ssl.pem_root_certs = train::ReadText(trusted.cert);
    if (own != nullptr) {
      ssl.pem_private_key = train::ReadText(own->key);
      ssl.pem_cert_chain = train::ReadText(own->cert);
    }
    return grpc::SslCredentials(ssl);
  };
  std::string address = fmt::format("localhost:{}", (*server)->port());
  EXPECT_TRUE(Call(TestClient(address, secure(pair, nullptr))).ok());
  EXPECT_FALSE(Call(TestClient(address, secure(other, nullptr))).ok());
  EXPECT_FALSE(Call(TestClient(address)).ok());  // in the clear

  // Where callers need a certificate too.
  *server = nullptr;
  options.tls_ca = other.cert;
  server = TrainerServer::Start(&worker, options);
  ASSERT_TRUE(server.ok()) << server.status();
  address = fmt::format("localhost:{}", (*server)->port());
  EXPECT_TRUE(Call(TestClient(address, secure(pair, &other))).ok());
  EXPECT_FALSE(Call(TestClient(address, secure(pair, &pair))).ok());
  EXPECT_FALSE(Call(TestClient(address, secure(pair, nullptr))).ok());

  options.tls_ca = "";
  options.tls_key = dir_.File("none");
  EXPECT_EQ(TrainerServer::Start(&worker, options).status().code(), absl::StatusCode::kNotFound);
  train::WriteText(options.tls_key, "no key");
  EXPECT_THAT(Message(TrainerServer::Start(&worker, options).status()), HasSubstr("no PEM file"));
  train::WriteText(options.tls_key, "-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----\n");
  EXPECT_THAT(Message(TrainerServer::Start(&worker, options).status()),
              HasSubstr("TLS file damaged"));
}

TEST_F(TrainerServerTest, APortIsOneServers) {
  TrainerWorker worker(Options());
  const auto server = TrainerServer::Start(&worker, {});
  ASSERT_TRUE(server.ok()) << server.status();
  ServerOptions same;
  same.listen = fmt::format("127.0.0.1:{}", (*server)->port());
  EXPECT_THAT(Message(TrainerServer::Start(&worker, same).status()),
              HasSubstr("is the port in use"));
  ServerOptions metrics;
  metrics.metrics_listen = "127.0.0.1:0";
  const auto first = TrainerServer::Start(&worker, metrics);
  ASSERT_TRUE(first.ok()) << first.status();
  metrics.metrics_listen = fmt::format("127.0.0.1:{}", (*first)->metrics_port());
  EXPECT_THAT(Message(TrainerServer::Start(&worker, metrics).status()), HasSubstr("is it in use"));
}

TEST_F(TrainerServerTest, StandardHealthChecksFollowTheServer) {
  TrainerWorker worker(Options());
  const auto server = TrainerServer::Start(&worker, {});
  ASSERT_TRUE(server.ok()) << server.status();
  TestClient client(fmt::format("127.0.0.1:{}", (*server)->port()));
  // grpc.health.v1.HealthCheckRequest{service} and HealthCheckResponse{status}: 1 = SERVING,
  // 2 = NOT_SERVING.
  const auto check = [&](const std::string& service) {
    const std::string bytes =
        service.empty() ? "" : std::string{'\x0a', static_cast<char>(service.size())} + service;
    std::string answer;
    const grpc::Status status = client.RawCall("/grpc.health.v1.Health/Check", bytes, &answer);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return answer == "\x08\x01" ? "SERVING" : answer == "\x08\x02" ? "NOT_SERVING" : answer;
  };
  EXPECT_EQ(check("meshwright.v1.TrainerWorker"), "NOT_SERVING");
  (*server)->SetServing(true);
  EXPECT_EQ(check("meshwright.v1.TrainerWorker"), "SERVING");
  EXPECT_EQ(check(""), "SERVING");
}

TEST_F(TrainerServerTest, MetricsOverHttp) {
  ServerOptions options;
  options.metrics_listen = "127.0.0.1:0";
  TrainerWorker worker(Options());
  const auto server = TrainerServer::Start(&worker, options);
  ASSERT_TRUE(server.ok()) << server.status();
  Ok(worker.Initialize());
  TestClient client(fmt::format("127.0.0.1:{}", (*server)->port()));
  v1::StepReply reply;
  ASSERT_TRUE(client.FwdBwd(TestTensors(0), "a", &reply, true, true).ok());
  EXPECT_FALSE(client.FwdBwd({}, "b", &reply).ok());
  const int port = (*server)->metrics_port();
  const std::string page =
      Http(port, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(page, HasSubstr("HTTP/1.1 200"));
  EXPECT_THAT(page, HasSubstr("text/plain; version=0.0.4"));
  for (const char* line :
       {"\nmeshwright_state{state=\"READY\"} 1\n", "\nmeshwright_state{state=\"ERROR\"} 0\n",
        "\nmeshwright_policy_version 1\n", "\nmeshwright_step 1\n",
        "\nmeshwright_calls_total{method=\"FwdBwd\",code=\"OK\"} 1\n",
        "\nmeshwright_calls_total{method=\"FwdBwd\",code=\"INVALID_ARGUMENT\"} 1\n",
        "\n# TYPE meshwright_learning_loss gauge\n"}) {
    EXPECT_THAT(page, HasSubstr(line));
  }
  // Every line of the body is a comment or a sample, and every sample's name is introduced.
  std::istringstream body(page.substr(page.find("\r\n\r\n") + 4));
  const std::regex sample("([a-z_]+)(\\{[^{}]*\\})? (-?[0-9.e+-]+|NaN|[+-]Inf)");
  std::set<std::string> introduced;
  int num_samples = 0;
  for (std::string line; std::getline(body, line);) {
    if (line.starts_with("# TYPE ")) introduced.insert(line.substr(7, line.find(' ', 7) - 7));
    if (line.starts_with("# ")) continue;
    std::smatch match;
    ASSERT_TRUE(std::regex_match(line, match, sample)) << line;
    EXPECT_TRUE(introduced.contains(match[1])) << line;
    ++num_samples;
  }
  EXPECT_GT(num_samples, 20);
  EXPECT_THAT(Http(port, "GET /weights HTTP/1.1\r\nHost: l\r\nConnection: close\r\n\r\n"),
              HasSubstr(" 404 "));
  EXPECT_THAT(Http(port, "nonsense\r\n\r\n"), HasSubstr(" 400 "));
  EXPECT_THAT(Http(port,
                   "POST /metrics HTTP/1.1\r\nHost: l\r\nContent-Length: 2\r\n"
                   "Connection: close\r\n\r\nhi"),
              HasSubstr(" 404 "));
}

TEST(MetricsPageTest, ValuesThatAreNoNumbers) {
  train::MetricRecord record;
  record.Set("a/b c", std::numeric_limits<double>::quiet_NaN());
  record.Set("inf", std::numeric_limits<double>::infinity());
  const std::string page = MetricsPage({}, record, {});
  EXPECT_THAT(page, HasSubstr("\nmeshwright_a_b_c NaN\n"));
  EXPECT_THAT(page, HasSubstr("\nmeshwright_inf +Inf\n"));
}

}  // namespace
}  // namespace mw::service
