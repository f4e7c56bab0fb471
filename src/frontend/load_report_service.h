// xds.service.orca.v3.OpenRcaService: load reports apart from requests, for those whose streams live long.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <utility>

#include "berth/metrics.h"
#include "xds/service/orca/v3/orca.grpc.pb.h"

namespace berth {

class LoadReportService final : public xds::service::orca::v3::OpenRcaService::CallbackService {
 public:
  // `load`: any thread, quick.
  explicit LoadReportService(std::function<LoadSnapshot()> load) : load_(std::move(load)) {}

  grpc::ServerWriteReactor<xds::data::orca::v3::OrcaLoadReport>* StreamCoreMetrics(
      grpc::CallbackServerContext* context, const xds::service::orca::v3::OrcaLoadReportRequest* request) override;

 private:
  const std::function<LoadSnapshot()> load_;
};

}  // namespace berth
