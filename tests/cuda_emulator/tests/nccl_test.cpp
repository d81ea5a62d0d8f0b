// The emulated NCCL follows NCCL's rules, and checks that its users do: messages meet within groups that run at the
// same time, in order; a message without its counterpart waits; communicators do not block, and must not be used
// meanwhile.
#include <cuda_emulator_nccl.h>
#include <nccl.h>

#include <thread>
#include <vector>

#include "support.h"

namespace {

using cuda_emulator::nccl_misuses;

/// Polls until the started operation is done.
ncclResult_t settled(ncclComm_t communicator) {
  ncclResult_t state = ncclInProgress;
  for (int polls = 0; polls < 1000 && state == ncclInProgress; ++polls) {
    EXPECT_EQ(ncclCommGetAsyncError(communicator, &state), ncclSuccess);
  }
  return state;
}

/// Returns whether the last misuse contains this text.
bool noted(const std::string& part) {
  const auto all = nccl_misuses();
  return !all.empty() && contains(all.back(), part);
}

/// Two ranks in one thread; each has a device, a stream there, and memory for one number to send and two to receive.
class NcclTest : public EmulatorTest {
 protected:
  struct Rank {
    ncclComm_t communicator = nullptr;
    cudaStream_t stream = nullptr;
    int *sent = nullptr, *received = nullptr;
  };
  void SetUp() override {
    cuda_emulator::set_devices({.count = 2});
    join(ranks_);
    for (int r = 0; r < 2; ++r) {
      ASSERT_OK(cudaSetDevice(r));
      ASSERT_OK(cudaStreamCreateWithFlags(&ranks_[r].stream, cudaStreamNonBlocking));
      ASSERT_OK(cudaMalloc(&ranks_[r].sent, 4));
      ASSERT_OK(cudaMalloc(&ranks_[r].received, 8));
      const int value = 10 + r;
      ASSERT_OK(cudaMemcpy(ranks_[r].sent, &value, 4, cudaMemcpyHostToDevice));
    }
  }
  static void join(Rank (&ranks)[2]) {
    ncclUniqueId id;
    ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    for (int r = 0; r < 2; ++r) {
      ASSERT_OK(cudaSetDevice(r));
      ncclConfig_t config = right_config();
      ASSERT_EQ(ncclCommInitRankConfig(&ranks[r].communicator, 2, id, r, &config), ncclInProgress);
    }
    for (const Rank& rank : ranks) ASSERT_EQ(settled(rank.communicator), ncclSuccess);
  }
  /// Returns a config that the emulator accepts.
  static ncclConfig_t right_config() {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.maxCTAs = 8;
    return config;
  }
  ncclResult_t send(int r, std::size_t count = 1, ncclDataType_t type = ncclInt32) {
    return ncclSend(ranks_[r].sent, count, type, 1 - r, ranks_[r].communicator, ranks_[r].stream);
  }
  ncclResult_t receive(int r, int place = 0, std::size_t count = 1) {
    return ncclRecv(ranks_[r].received + place, count, ncclInt32, 1 - r, ranks_[r].communicator, ranks_[r].stream);
  }
  int received(int r, int place = 0) {
    int value = -2;
    EXPECT_OK(cudaStreamSynchronize(ranks_[r].stream));
    EXPECT_OK(cudaMemcpy(&value, ranks_[r].received + place, 4, cudaMemcpyDeviceToHost));
    return value;
  }
  /// Returns whether the stream has nothing left to do, after enough polls to run what can run.
  bool ends(int r) {
    cudaEvent_t end = nullptr;
    EXPECT_OK(cudaSetDevice(r));
    EXPECT_OK(cudaEventCreateWithFlags(&end, cudaEventDisableTiming));
    EXPECT_OK(cudaEventRecord(end, ranks_[r].stream));
    for (int polls = 0; polls < 100; ++polls) {
      if (cudaEventQuery(end) == cudaSuccess) return true;
    }
    return false;
  }
  Rank ranks_[2];
};

TEST_F(NcclTest, MessagesOfGroupsMeet) {
  for (int r = 0; r < 2; ++r) {
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    ASSERT_EQ(send(r), ncclSuccess);
    ASSERT_EQ(receive(r), ncclSuccess);
    ASSERT_EQ(ncclGroupEnd(), ncclInProgress);
  }
  ASSERT_EQ(settled(ranks_[0].communicator), ncclSuccess);
  EXPECT_FALSE(ends(0));  // the other rank has not posted yet
  ASSERT_EQ(settled(ranks_[1].communicator), ncclSuccess);
  EXPECT_EQ(received(0), 11);
  EXPECT_EQ(received(1), 10);
  for (const Rank& rank : ranks_) EXPECT_EQ(ncclCommFinalize(rank.communicator), ncclInProgress);
  for (const Rank& rank : ranks_) {
    EXPECT_EQ(settled(rank.communicator), ncclSuccess);
    EXPECT_EQ(ncclCommDestroy(rank.communicator), ncclSuccess);
  }
  EXPECT_EQ(nccl_misuses(), std::vector<std::string>{});
  EXPECT_EQ(cuda_emulator::nccl_communicators(), 0);
}

TEST_F(NcclTest, WithoutGroupsTwoSendsWaitForEver) {
  for (int r = 0; r < 2; ++r) ASSERT_EQ(send(r), ncclInProgress);
  // Nobody receives, so not even the connections are made.
  EXPECT_EQ(settled(ranks_[0].communicator), ncclInProgress);
  for (const Rank& rank : ranks_) ASSERT_EQ(ncclCommAbort(rank.communicator), ncclSuccess);

  join(ranks_);
  for (int r = 0; r < 2; ++r) {  // connects
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    ASSERT_EQ(send(r), ncclSuccess);
    ASSERT_EQ(receive(r), ncclSuccess);
    ASSERT_EQ(ncclGroupEnd(), ncclInProgress);
  }
  for (const Rank& rank : ranks_) ASSERT_EQ(settled(rank.communicator), ncclSuccess);
  for (const bool sends : {true, false}) {
    for (int r = 0; r < 2; ++r) {
      ASSERT_EQ(sends ? send(r) : receive(r), ncclInProgress);
      ASSERT_EQ(settled(ranks_[r].communicator), ncclSuccess);
    }
  }
  EXPECT_FALSE(ends(0));
  EXPECT_FALSE(ends(1));
  for (const Rank& rank : ranks_) ASSERT_EQ(ncclCommAbort(rank.communicator), ncclSuccess);
  EXPECT_TRUE(ends(0));
  EXPECT_TRUE(ends(1));
  EXPECT_EQ(nccl_misuses(), std::vector<std::string>{});
}

TEST_F(NcclTest, MessagesKeepTheirOrderAndSizesMustAgree) {
  const int second = 77;
  ASSERT_OK(cudaMemcpy(ranks_[0].received, &second, 4, cudaMemcpyHostToDevice));
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  ASSERT_EQ(send(0), ncclSuccess);
  ASSERT_EQ(ncclSend(ranks_[0].received, 1, ncclInt32, 1, ranks_[0].communicator, ranks_[0].stream), ncclSuccess);
  ASSERT_EQ(ncclGroupEnd(), ncclInProgress);
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  ASSERT_EQ(receive(1, 1), ncclSuccess);
  ASSERT_EQ(receive(1, 0), ncclSuccess);
  ASSERT_EQ(ncclGroupEnd(), ncclInProgress);
  for (const Rank& rank : ranks_) ASSERT_EQ(settled(rank.communicator), ncclSuccess);
  EXPECT_EQ(received(1, 0), 77);
  EXPECT_EQ(received(1, 1), 10);
  ASSERT_EQ(send(0, 4, ncclUint8), ncclInProgress);
  ASSERT_EQ(receive(1), ncclInProgress);
  for (const Rank& rank : ranks_) settled(rank.communicator);
  for (const Rank& rank : ranks_) EXPECT_EQ(settled(rank.communicator), ncclInternalError);
  EXPECT_FALSE(ends(1));
}

TEST_F(NcclTest, WhatIsAgainstTheRulesIsNoted) {
  ASSERT_EQ(send(0), ncclInProgress);
  EXPECT_EQ(receive(0), ncclInvalidArgument);
  EXPECT_TRUE(noted("before the communicator's previous operation"));
  EXPECT_EQ(ncclCommFinalize(ranks_[0].communicator), ncclInvalidUsage);
  EXPECT_TRUE(noted("in progress"));
  EXPECT_EQ(ncclCommDestroy(ranks_[1].communicator), ncclInvalidUsage);
  EXPECT_TRUE(noted("ncclCommFinalize"));
  EXPECT_EQ(send(1, 2), ncclInvalidArgument);
  EXPECT_TRUE(noted("more than the memory"));
  int host = 0;
  EXPECT_EQ(ncclSend(&host, 1, ncclInt32, 0, ranks_[1].communicator, ranks_[1].stream), ncclInvalidArgument);
  EXPECT_TRUE(noted("no device's"));
  EXPECT_EQ(ncclSend(ranks_[0].sent, 1, ncclInt32, 0, ranks_[1].communicator, ranks_[1].stream), ncclInvalidArgument);
  EXPECT_TRUE(noted("another device"));
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  std::thread([&] {
    ncclGroupStart();
    EXPECT_EQ(ncclCommAbort(ranks_[1].communicator), ncclInvalidUsage);
    EXPECT_TRUE(noted("puts it off"));
  }).join();
  EXPECT_TRUE(noted("a group open"));
  for (const Rank& rank : ranks_) EXPECT_EQ(ncclCommAbort(rank.communicator), ncclSuccess);
  ncclResult_t state = ncclSuccess;
  EXPECT_EQ(ncclCommGetAsyncError(ranks_[0].communicator, &state), ncclInvalidArgument);
  EXPECT_TRUE(noted("was destroyed or aborted"));
}

TEST_F(NcclTest, PartsAreHandedOutWhenAllHaveSplit) {
  ncclConfig_t config = right_config();
  ncclComm_t parts[2]{};
  const auto split = [&](int r, int color) {
    return ncclCommSplit(ranks_[r].communicator, color, 5 - r, &parts[r], &config);
  };
  ASSERT_EQ(split(0, 4), ncclSuccess);  // although it continues
  EXPECT_EQ(settled(ranks_[0].communicator), ncclInProgress);
  EXPECT_EQ(parts[0], nullptr);
  ASSERT_EQ(split(1, 4), ncclSuccess);
  for (int r = 0; r < 2; ++r) {
    while (settled(ranks_[r].communicator) == ncclInProgress) settled(ranks_[1 - r].communicator);
    ASSERT_NE(parts[r], nullptr);
    EXPECT_EQ(settled(parts[r]), ncclSuccess);
  }
  // Their keys have exchanged their positions: each now sends to the one with its own number.
  for (int r = 0; r < 2; ++r) {
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    ASSERT_EQ(ncclSend(ranks_[r].sent, 1, ncclInt32, r, parts[r], ranks_[r].stream), ncclSuccess);
    ASSERT_EQ(ncclRecv(ranks_[r].received, 1, ncclInt32, r, parts[r], ranks_[r].stream), ncclSuccess);
    ASSERT_EQ(ncclGroupEnd(), ncclInProgress);
  }
  for (const ncclComm_t part : parts) ASSERT_EQ(settled(part), ncclSuccess);
  for (int r = 0; r < 2; ++r) EXPECT_EQ(received(r), 11 - r);
}

TEST_F(NcclTest, ASplitHasRulesToo) {
  ncclConfig_t config = right_config();
  ncclComm_t part = nullptr;
  ASSERT_EQ(send(0), ncclInProgress);
  ASSERT_EQ(receive(1), ncclInProgress);
  for (const Rank& rank : ranks_) ASSERT_EQ(settled(rank.communicator), ncclSuccess);
  EXPECT_EQ(ncclCommSplit(ranks_[0].communicator, 0, 0, &part, &config), ncclInvalidUsage);
  EXPECT_TRUE(noted("under way"));
  EXPECT_TRUE(ends(0));
  EXPECT_EQ(ncclCommSplit(ranks_[0].communicator, -1, 0, &part, &config), ncclInvalidUsage);
  EXPECT_TRUE(noted("below 0"));
  ncclConfig_t unbounded = right_config();
  unbounded.maxCTAs = NCCL_CONFIG_UNDEF_INT;
  EXPECT_NE(ncclCommSplit(ranks_[0].communicator, 0, 0, &part, &unbounded), ncclSuccess);
  EXPECT_TRUE(noted("maxCTAs"));
  ASSERT_EQ(ncclCommSplit(ranks_[0].communicator, 0, 0, &part, &config), ncclSuccess);
  EXPECT_EQ(send(0), ncclInvalidArgument);
  EXPECT_TRUE(noted("before the communicator's previous operation"));
  // The other rank does not call. The abort of the whole returns the state of the part.
  EXPECT_EQ(ncclCommAbort(ranks_[0].communicator), ncclSuccess);
  ASSERT_NE(part, nullptr);
  EXPECT_EQ(settled(part), ncclInternalError);
  EXPECT_EQ(ncclCommAbort(part), ncclSuccess);
  EXPECT_EQ(cuda_emulator::nccl_communicators(), 1);
}

TEST_F(NcclTest, CollectivesMeetAsMessagesDo) {
  float* parts[2];  // two per rank, one number each
  const float values[2][2]{{1, 2}, {10, 20}};
  for (int r = 0; r < 2; ++r) {
    ASSERT_OK(cudaSetDevice(r));
    ASSERT_OK(cudaMalloc(&parts[r], 8));
    ASSERT_OK(cudaMemcpy(parts[r], values[r], 8, cudaMemcpyHostToDevice));
  }
  const auto settle = [&] {
    for (const Rank& rank : ranks_) ASSERT_EQ(settled(rank.communicator), ncclSuccess);
  };
  const auto read = [&](int r) {
    std::vector<float> both(2);
    EXPECT_OK(cudaStreamSynchronize(ranks_[r].stream));
    EXPECT_OK(cudaMemcpy(both.data(), parts[r], 8, cudaMemcpyDeviceToHost));
    return both;
  };
  const auto reduce_scatter = [&](int r, float* to) {
    return ncclReduceScatter(parts[r], to, 1, ncclFloat32, ncclSum, ranks_[r].communicator, ranks_[r].stream);
  };
  ASSERT_EQ(reduce_scatter(0, parts[0]), ncclInProgress);
  EXPECT_EQ(settled(ranks_[0].communicator), ncclInProgress);  // the other rank has not arrived
  ASSERT_EQ(reduce_scatter(1, parts[1] + 1), ncclInProgress);
  settle();
  EXPECT_EQ(read(0)[0], 11);
  EXPECT_NE(read(0)[1], 2);  // lost
  EXPECT_EQ(read(1)[1], 22);
  for (int r = 0; r < 2; ++r) {
    ASSERT_EQ(ncclAllGather(parts[r] + r, parts[r], 1, ncclFloat32, ranks_[r].communicator, ranks_[r].stream),
              ncclInProgress);
  }
  settle();
  for (int r = 0; r < 2; ++r) EXPECT_EQ(read(r), (std::vector<float>{11, 22}));
  for (int r = 0; r < 2; ++r) {  // a sum at one rank and a copy from the other, as a group
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    ASSERT_EQ(ncclReduce(parts[r], parts[r], 1, ncclFloat32, ncclSum, 0, ranks_[r].communicator, ranks_[r].stream),
              ncclSuccess);
    ASSERT_EQ(ncclBroadcast(parts[r] + 1, parts[r] + 1, 1, ncclFloat32, 1, ranks_[r].communicator, ranks_[r].stream),
              ncclSuccess);
    ASSERT_EQ(ncclGroupEnd(), ncclInProgress);
  }
  settle();
  EXPECT_EQ(read(0), (std::vector<float>{22, 22}));
  EXPECT_EQ(nccl_misuses(), std::vector<std::string>{});
  EXPECT_EQ(reduce_scatter(0, parts[0] + 1), ncclInvalidArgument);
  EXPECT_NE(nccl_misuses().back().find("not in place"), std::string::npos);
  // The calls of the two ranks must agree.
  ASSERT_EQ(reduce_scatter(0, parts[0]), ncclInProgress);
  ASSERT_EQ(ncclAllGather(parts[1] + 1, parts[1], 1, ncclFloat32, ranks_[1].communicator, ranks_[1].stream),
            ncclInProgress);
  settled(ranks_[0].communicator);
  settled(ranks_[1].communicator);
  EXPECT_EQ(settled(ranks_[0].communicator), ncclInternalError);
}

TEST_F(NcclTest, FaultsComeWhereTheyAreWanted) {
  cuda_emulator::hang_nccl_group(1, 1);
  cuda_emulator::break_nccl_group(0, 2, ncclRemoteError);
  ASSERT_EQ(send(0), ncclInProgress);
  ASSERT_EQ(receive(1), ncclInProgress);
  for (const Rank& rank : ranks_) ASSERT_EQ(settled(rank.communicator), ncclSuccess);
  EXPECT_FALSE(ends(0));
  EXPECT_FALSE(ends(1));
  ASSERT_EQ(send(0), ncclInProgress);
  for (int polls = 0; polls < 2; ++polls) EXPECT_EQ(settled(ranks_[0].communicator), ncclSuccess);
  EXPECT_EQ(settled(ranks_[0].communicator), ncclRemoteError);
  cuda_emulator::fail_nccl_call("ncclGroupStart", 2, ncclSystemError);
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(ncclGroupStart(), ncclSystemError);
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
}

}  // namespace
