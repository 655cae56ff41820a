// OnDevices: trains a mesh case with the engine on virtual CPU devices. Each program of a
// case is compiled for some ten seconds.
#ifndef MESHWRIGHT_TRAIN_MESH_ON_DEVICES_FOR_TEST_H_
#define MESHWRIGHT_TRAIN_MESH_ON_DEVICES_FOR_TEST_H_

#include <memory>
#include <utility>
#include <vector>

#include "meshwright/graph_testing/run_partitioned.h"
#include "meshwright/train/mesh_case_for_test.h"

namespace mw::train {

inline absl::StatusOr<MeshNumbers> TrainOnDevices(const MeshCase& c, bool replicate,
                                                  bool learn_more) {
  MW_ASSIGN_OR_RETURN(const EngineOptions options, OptionsOf(c, replicate));
  MW_ASSIGN_OR_RETURN(const std::unique_ptr<models::Model> model, models::CreateModel(ConfigOf(c)));
  MW_ASSIGN_OR_RETURN(const auto client, TestMeshClient());
  const std::vector<HostTensor> before = RandomParams(*model, options);
  MW_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                      Engine::Create(client, SharedTestCache(), model.get(), before, options));
  for (const data::Batch& batch : BatchesOf(c, learn_more)) {
    MW_RETURN_IF_ERROR(engine->FwdBwd(batch));
  }
  const auto doubles = [](const HostTensor& tensor) {
    return std::vector<double>(tensor.as<float>().begin(), tensor.as<float>().end());
  };
  MeshNumbers numbers;
  for (const nn::ParamSpec& spec : engine->trained_params()) numbers.names.push_back(spec.name);
  MW_ASSIGN_OR_RETURN(const GradientReadout read, engine->ReadGradients());
  for (const HostTensor& gradient : read.gradients) numbers.gradients.push_back(doubles(gradient));
  numbers.denominator = read.loss.denominator();
  numbers.loss = read.loss.Loss();
  MW_RETURN_IF_ERROR(engine->Update());
  MW_ASSIGN_OR_RETURN(const std::vector<StepMetrics> metrics, engine->TakeMetrics(true));
  numbers.reported_loss = metrics.back().loss.sum() / metrics.back().loss.denominator();
  numbers.grad_norm = metrics.back().grad_norm;
  MW_ASSIGN_OR_RETURN(const std::vector<HostTensor> after, engine->Params());
  for (size_t i = 0; i < before.size(); ++i) {
    if (!engine->params()[i].trainable) continue;
    std::vector<double>& change = numbers.change.emplace_back(doubles(after[i]));
    const auto old = before[i].as<float>();
    for (size_t k = 0; k < old.size(); ++k) change[k] -= old[k];
  }
  return numbers;
}

inline const MeshTrainer& OnDevices() {
  // A weight of 0.2 is stored to 2^-27, and gradients are some 2^-6: the change of a tensor
  // adds that rounding to the gradient's own.
  static const auto* const trainer = new MeshTrainer{
      .name = "devices", .train = TrainOnDevices, .tolerance = 1e-5, .change_tolerance = 2e-5};
  return *trainer;
}

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_MESH_ON_DEVICES_FOR_TEST_H_
