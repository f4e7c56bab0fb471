#include "load_run.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>

namespace berth::bench {
namespace {

constexpr auto kPatience = std::chrono::seconds(10);
constexpr std::int64_t kNoStream = -1;

TimePoint Now() { return SteadyClock().Now(); }

std::shared_ptr<grpc::Channel> Connection(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  // Channels to one address would share a connection otherwise.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace

absl::StatusOr<ServerFacts> AskServer(const std::string& address) {
  const auto stub = v1::Inference::NewStub(Connection(address));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  v1::GetModelInfoResponse info;
  const grpc::Status status = stub->GetModelInfo(&context, {}, &info);
  if (!status.ok()) return absl::UnavailableError("no answer from " + address + ": " + status.error_message());
  return ServerFacts{info.vocab_size(), info.max_context_tokens(), info.default_class()};
}

LoadRun::LoadRun(LoadOptions options, Workload* workload, std::deque<Tally>* tallies)
    : options_(std::move(options)), workload_(workload), tallies_(tallies) {}

absl::Status LoadRun::Connect() {
  for (int i = 0; i < options_.connections; ++i) {
    const std::shared_ptr<grpc::Channel> channel = Connection(options_.server);
    if (!channel->WaitForConnected(std::chrono::system_clock::now() + kPatience)) {
      return absl::UnavailableError("connection " + std::to_string(i + 1) + " to " + options_.server +
                                    " was not made in time");
    }
    stubs_.push_back(v1::Inference::NewStub(channel));
  }
  return absl::OkStatus();
}

LoadResult LoadRun::Run() {
  prctl(PR_SET_TIMERSLACK, 1);  // arrivals are not gathered
  window_.start = Now() + options_.warm_up;
  if (options_.duration > Duration::zero()) window_.end = window_.start + options_.duration;
  options_.streams > 0 ? RunClosedLoop() : RunOpenLoop();
  SleepUntil(window_.start);

  LoadResult result;
  ProcessStats client;
  ProcessStats server;
  const TimePoint end = std::min(Now(), window_.end);
  NoteUse(&client, &server);
  result.measured = end - window_.start;
  result.client_cpu_seconds = client.cpu_seconds - client_before_.cpu_seconds;
  result.server_cpu_seconds = server.cpu_seconds - server_before_.cpu_seconds;
  result.server_peak_bytes = static_cast<std::int64_t>(server.peak_resident_bytes);
  WaitForTheRest();
  return result;
}

void LoadRun::RunClosedLoop() {
  for (std::int64_t stream = 0; stream < options_.streams; ++stream) NextOfStream(stream);
  SleepUntil(std::min(window_.start, window_.end));
  std::unique_lock lock(mutex_);
  const auto all_done = [this] { return options_.requests > 0 && sent_ >= options_.requests && open_.empty(); };
  if (window_.end == kNoDeadline) {
    changed_.wait(lock, all_done);
  } else {
    changed_.wait_until(lock, window_.end, all_done);
  }
  over_ = true;
}

void LoadRun::NextOfStream(std::int64_t stream) { Send(workload_->Next(), Now(), stream); }

void LoadRun::RunOpenLoop() {
  TimePoint due = Now();
  const TimePoint start = due;
  for (std::size_t i = 0; options_.trace.empty() || i < options_.trace.size(); ++i) {
    if (options_.trace.empty()) {
      due += workload_->Gap(options_.rate);
    } else {
      due = start + std::chrono::duration_cast<Duration>(options_.trace[i].at / options_.speed);
    }
    {
      const std::lock_guard lock(mutex_);
      if (!MaySend(due)) break;
    }
    SleepUntil(due);
    Send(options_.trace.empty() ? workload_->Next() : workload_->Next(options_.trace[i]), due, kNoStream);
  }
  if (window_.end != kNoDeadline) return SleepUntil(window_.end);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return open_.empty(); });
}

void LoadRun::Send(Job job, TimePoint due, std::int64_t stream) {
  Tally& tally = (*tallies_)[job.service_class];
  StreamSetup setup{
      .slo = options_.slos[job.service_class], .window = window_, .due = due, .timeout = options_.timeout};
  setup.tally = &tally;
  LoadStream* call = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (!MaySend(due)) {
      changed_.notify_all();
      return;
    }
    if (stream == kNoStream && static_cast<std::int64_t>(open_.size()) >= options_.max_open) {
      if (window_.Has(due)) ++tally.not_sent;
      return;
    }
    const CallId id = sent_++;
    const std::int64_t place = stream == kNoStream ? id : stream;
    setup.stub = stubs_[static_cast<std::size_t>(place) % stubs_.size()].get();
    call = new LoadStream(setup, std::move(job), [this, id, stream] { Ended(id, stream); });
    open_.emplace(id, call->context());
  }
  call->Start();
}

void LoadRun::Ended(CallId call, std::int64_t stream) {
  if (stream != kNoStream) NextOfStream(stream);
  // Last, and under the lock: whoever finds that nothing is open may destroy the run.
  const std::lock_guard lock(mutex_);
  open_.erase(call);
  if (open_.empty()) changed_.notify_all();
}

void LoadRun::SleepUntil(TimePoint then) {
  if (!start_noted_ && then >= window_.start) {
    std::this_thread::sleep_until(window_.start);
    NoteUse(&client_before_, &server_before_);
    start_noted_ = true;
  }
  std::this_thread::sleep_until(then);
}

void LoadRun::NoteUse(ProcessStats* client, ProcessStats* server) const {
  *client = ReadProcessStats();
  if (options_.server_pid != 0) *server = ReadProcessStats(options_.server_pid);
}

void LoadRun::WaitForTheRest() {
  std::vector<std::shared_ptr<grpc::ClientContext>> left;
  {
    std::unique_lock lock(mutex_);
    over_ = true;
    changed_.wait_for(lock, options_.drain, [this] { return open_.empty(); });
    for (const auto& [id, context] : open_) left.push_back(context);
  }
  for (const std::shared_ptr<grpc::ClientContext>& context : left) context->TryCancel();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return open_.empty(); });
}

}  // namespace berth::bench
