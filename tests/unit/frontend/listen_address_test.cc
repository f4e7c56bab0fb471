#include "frontend/listen_address.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

namespace berth {
namespace {

using ::testing::HasSubstr;

TEST(ListenAddressTest, WhatIsNoAddressIsRefusedWithTheFormsThatAre) {
  for (const char* bad : {"", "8433", ":8433", "localhost", "localhost:", "localhost:http", "localhost:65536",
                          "localhost:-1", "localhost:123456", "::1:8433", "unix:"}) {
    const absl::Status status = CheckListenAddress(bad);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(std::string(status.message()), HasSubstr("HOST:PORT")) << bad;
  }
}

TEST(ListenAddressTest, AnyFreePortIsFree) { EXPECT_TRUE(CheckListenAddress("127.0.0.1:0").ok()); }

TEST(ListenAddressTest, APortInUseIsNamedInOneLine) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_GE(fd, 0);
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&name), sizeof(name)), 0);
  ASSERT_EQ(::listen(fd, 1), 0);
  socklen_t size = sizeof(name);
  ASSERT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size), 0);
  const std::string address = "127.0.0.1:" + std::to_string(ntohs(name.sin_port));
  const absl::Status status = CheckListenAddress(address);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("cannot listen on " + address + ": the port is in use"));
  ::close(fd);
}

TEST(ListenAddressTest, AHostThatIsNotThisOneIsRefused) {
  // TEST-NET-1 (RFC 5737) belongs to nobody.
  EXPECT_EQ(CheckListenAddress("192.0.2.1:8433").code(), absl::StatusCode::kFailedPrecondition);
}

TEST(ListenAddressTest, AUnixSocketThatIsServedIsNotTakenOver) {
  const std::string path = testing::TempDir() + "/berth-listen-" + std::to_string(::getpid());
  const std::string address = "unix:" + path;
  EXPECT_TRUE(CheckListenAddress(address).ok());
  EXPECT_FALSE(std::filesystem::exists(path)) << "the check leaves nothing behind";

  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  ASSERT_LT(path.size(), sizeof(name.sun_path));
  std::memcpy(name.sun_path, path.c_str(), path.size() + 1);
  ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&name), sizeof(name)), 0);
  ASSERT_EQ(::listen(fd, 1), 0);
  EXPECT_THAT(std::string(CheckListenAddress(address).message()), HasSubstr("another process serves it"));
  ::close(fd);
  EXPECT_TRUE(CheckListenAddress(address).ok()) << "what a dead server left is replaced";
  ::unlink(path.c_str());

  std::ofstream(path) << "data";
  EXPECT_THAT(std::string(CheckListenAddress(address).message()), HasSubstr("is no socket"));
  EXPECT_TRUE(std::filesystem::exists(path));
  ::unlink(path.c_str());
}

TEST(ListenAddressTest, UnixPathsAreBoundedAndNeedTheirFolder) {
  EXPECT_THAT(std::string(CheckListenAddress("unix:/" + std::string(200, 'x')).message()), HasSubstr("longer than"));
  EXPECT_EQ(CheckListenAddress("unix:/nowhere/to/be/found").code(), absl::StatusCode::kFailedPrecondition);
}

TEST(ListenAddressTest, AUnixPathThatGrpcReadsOtherwiseIsRefused) {
  for (const std::string name : {"%41.sock", "a?b", "a#b"}) {
    EXPECT_THAT(std::string(CheckListenAddress("unix:" + testing::TempDir() + "/" + name).message()),
                HasSubstr("choose a path without them"))
        << name;
  }
}

TEST(ListenAddressTest, TheBoundPortTakesTheAskedOnesPlace) {
  EXPECT_EQ(WithPort("127.0.0.1:0", 8433), "127.0.0.1:8433");
  EXPECT_EQ(WithPort("[::1]:0", 8433), "[::1]:8433");
  EXPECT_EQ(WithPort("unix:/run/berth.sock", 1), "unix:/run/berth.sock");
}

}  // namespace
}  // namespace berth
