#include "meshwright/train/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>
#include <vector>

#include "meshwright/io/file_util.h"
#include "meshwright/testing/golden.h"
#include "meshwright/train/mesh_settings.h"
#include "meshwright/train/open_model.h"
#include "meshwright/train/step_params.h"

namespace mw::train {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string TempFile(const std::string& name, const std::string& text) {
  const std::string path = ::testing::TempDir() + name;
  EXPECT_TRUE(io::WriteFile(path, text).ok());
  return path;
}

absl::Status YamlError(const std::string& yaml) {
  TrainConfig config;
  return ApplyConfigYaml(config, yaml, "c.yaml");
}

absl::Status SettingError(const std::string& setting) { return LoadConfig("", {setting}).status(); }

TEST(ConfigTest, LaterWinsOverEarlier) {
  const std::string file =
      TempFile("later.yaml", "steps: 7\nbatch_size: 3\nloss: {z_loss: 1e-4}\ndtype: bfloat16\n");
  const auto config = LoadConfig(file, {"steps=8", "steps=9", "adam_b2=0.99"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->steps, 9);
  EXPECT_EQ(config->engine.schedule.total_steps, 9);
  EXPECT_EQ(config->data.batch_size, 3);
  EXPECT_EQ(config->engine.loss.z_loss, 1e-4);
  EXPECT_EQ(config->engine.optimizer.adam_b2, 0.99);
  EXPECT_EQ(config->engine.model.compute_dtype, DType::kBF16);
  EXPECT_EQ(config->gradient_accumulation_steps, TrainConfig().gradient_accumulation_steps);
}

// Every field, set to something that is not its default, comes back from its own text.
TEST(ConfigTest, YamlKeepsEveryField) {
  TrainConfig config;
  for (const ConfigField& field : ConfigFields()) {
    const FieldRef ref = field.at(config);
    if (bool* const* b = std::get_if<bool*>(&ref)) **b = !**b;
    if (int* const* i = std::get_if<int*>(&ref)) **i += 3;
    if (int64_t* const* i = std::get_if<int64_t*>(&ref)) **i += 5;
    if (uint64_t* const* i = std::get_if<uint64_t*>(&ref)) **i = ~uint64_t{0};
    if (double* const* d = std::get_if<double*>(&ref)) **d += 0.1;
    if (std::string* const* s = std::get_if<std::string*>(&ref)) **s = "names:q,'k': #1";
    if (DType* const* t = std::get_if<DType*>(&ref)) **t = DType::kBF16;
  }
  TrainConfig read;
  const absl::Status status = ApplyConfigYaml(read, ConfigToYaml(config), "config.yaml");
  ASSERT_TRUE(status.ok()) << status;
  const TrainConfig defaults;
  for (const ConfigField& field : ConfigFields()) {
    EXPECT_EQ(ConfigValue(read, field), ConfigValue(config, field)) << field.key;
    EXPECT_NE(ConfigValue(read, field), ConfigValue(defaults, field)) << field.key;
  }
}

TEST(ConfigTest, YamlKeepsTheDefaults) {
  TrainConfig read;
  const absl::Status status = ApplyConfigYaml(read, ConfigToYaml(TrainConfig()), "config.yaml");
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(ConfigToYaml(read), ConfigToYaml(TrainConfig()));
}

TEST(ConfigTest, OnlyADefaultLengthAdaptsToTheModel) {
  models::ModelConfig model;
  model.max_position = 100;
  TrainConfig config;
  config.AdaptTo(model);
  EXPECT_EQ(config.data.max_target_length, 100);
  auto given = LoadConfig("", {"max_target_length=200"});
  ASSERT_TRUE(given.ok()) << given.status();
  given->AdaptTo(model);
  EXPECT_EQ(given->data.max_target_length, 200);
}

TEST(ConfigTest, UnknownKeyNamesTheNearest) {
  const absl::Status status = SettingError("learning_rat=1");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("learning_rate"));
  const absl::Status yaml = YamlError("steps: 3\nloss:\n  z_los: 1\n");
  EXPECT_THAT(std::string(yaml.message()), StartsWith("c.yaml:3: "));
  EXPECT_THAT(std::string(yaml.message()), HasSubstr("loss.z_loss"));
}

TEST(ConfigTest, AnothersNameForAGroupNamesItsKeys) {
  const absl::Status status = SettingError("enable_lora=true");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("unknown key 'enable_lora'; keys of lora are lora.rank, lora.alpha"));
}

TEST(ConfigTest, LoraKeysDoNothingWithoutARank) {
  for (const char* key : {"lora.alpha", "lora.target_modules", "lora.use_rslora"}) {
    const char* const value = key == std::string("lora.alpha")            ? "16"
                              : key == std::string("lora.target_modules") ? "all-linear"
                                                                          : "true";
    const std::string setting = std::string(key) + "=" + value;
    const absl::Status status = SettingError(setting);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << setting;
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(key) + " does nothing"));
    EXPECT_TRUE(LoadConfig("", {setting, "lora.rank=4"}).ok()) << setting;
  }
  // A run's config.yaml names every key.
  TrainConfig config;
  ASSERT_TRUE(ApplyConfigYaml(config, ConfigToYaml(TrainConfig()), "config.yaml").ok());
  EXPECT_TRUE(config.Finish().ok());
  EXPECT_FALSE(LoadConfig("", {"lora.rank=0", "lora.alpha=8"}).ok());
  EXPECT_EQ(LoadConfig("", {"lora.rank=4", "lora.target_modules=q_porj"}).status().code(),
            absl::StatusCode::kNotFound);
}

TEST(ConfigTest, KeysOfLaterFeaturesAreErrors) {
  EXPECT_EQ(SettingError("moe_route=x").code(), absl::StatusCode::kUnimplemented)
      << SettingError("moe_route=x");
}

TEST(ConfigTest, SwitchesMayBeOnAndOff) {
  const auto off = LoadConfig("", {"kernels=off", "scan_layers=on"});
  ASSERT_TRUE(off.ok()) << off.status();
  EXPECT_FALSE(off->engine.model.kernels);
  EXPECT_TRUE(off->engine.model.scan_layers);
  EXPECT_THAT(std::string(SettingError("kernels=perhaps").message()), HasSubstr("true or false"));
}

TEST(ConfigTest, GrpoSettings) {
  const auto error = [](std::vector<std::string> settings) {
    settings.emplace_back("loss.name=grpo");
    return std::string(LoadConfig("", settings).status().message());
  };
  EXPECT_EQ(error({"loss.algorithm=gspo", "loss.clip_low=3e-4", "loss.clip_high=4e-4"}), "");
  for (const char* setting :
       {"loss.algorithm=ppo", "loss.clip_low=-0.1", "loss.clip_low=1.5", "loss.clip_high=-1",
        "loss.dual_clip=1", "loss.dual_clip=-2", "loss.kl_coef=-0.1", "loss.kl_estimator=k4",
        "loss.kl_in=both", "loss.aggregation=mean", "loss.norm_length=-1", "loss.importance=row",
        "loss.importance_cap=0", "loss.temperature=0", "loss.temperature=1e-60",
        "loss.log_ratio_bound=0", "loss.log_ratio_bound=81"}) {
    const std::string key = std::string(setting).substr(0, std::string(setting).find('='));
    EXPECT_THAT(error({setting}), HasSubstr(key)) << setting;
  }
  EXPECT_THAT(error({"loss.aggregation=constant"}), HasSubstr("give it"));
  // Those that the others leave without effect.
  for (const std::vector<std::string>& settings :
       std::vector<std::vector<std::string>>{{"loss.kl_estimator=k2"},
                                             {"loss.kl_in=reward"},
                                             {"loss.norm_length=8"},
                                             {"loss.importance_cap=3"},
                                             {"loss.clip_low=0.1", "loss.algorithm=reinforce"},
                                             {"loss.clip_high=0.1", "loss.algorithm=reinforce"},
                                             {"loss.dual_clip=3", "loss.algorithm=cispo"}}) {
    EXPECT_THAT(error(settings), HasSubstr("does nothing with the other settings")) << settings[0];
  }
  EXPECT_THAT(std::string(LoadConfig("", {"loss.kl_coef=0.1"}).status().message()),
              HasSubstr("a setting of loss.name=grpo"));
}

// Each loss has its own settings; another's would do nothing.
TEST(ConfigTest, SettingsOfAnotherLossAreErrors) {
  const auto error = [](std::vector<std::string> settings) {
    return std::string(LoadConfig("", settings).status().message());
  };
  EXPECT_THAT(error({"loss.dpo_beta=0.2"}),
              HasSubstr("loss.dpo_beta is a setting of loss.name=dpo, and loss.name is sft"));
  EXPECT_THAT(error({"loss.name=distill", "loss.z_loss=0.1"}), HasSubstr("loss.name=sft"));
  EXPECT_THAT(error({"loss.name=dpo", "loss.distill_top_k=8"}), HasSubstr("loss.name=distill"));
  EXPECT_TRUE(LoadConfig("", {"loss.name=dpo", "loss.dpo_beta=0.2"}).ok());
  for (const char* setting : {"loss.dpo_beta=0", "loss.dpo_beta=-1", "loss.dpo_loss=sigmod",
                              "loss.dpo_label_smoothing=0.5", "loss.dpo_label_smoothing=-0.1"}) {
    EXPECT_EQ(LoadConfig("", {"loss.name=dpo", setting}).status().code(),
              absl::StatusCode::kInvalidArgument)
        << setting;
  }
  EXPECT_THAT(error({"loss.name=dpo", "loss.dpo_loss=ipo", "loss.dpo_label_smoothing=0.1"}),
              HasSubstr("is of loss.dpo_loss sigmoid only"));
  EXPECT_THAT(error({"loss.name=dpo", "loss.dpo_loss=ipo", "loss.dpo_beta=1e-30"}),
              HasSubstr("(1 / (2 loss.dpo_beta))^2"));
  for (const char* setting : {"loss.distill_kl=both", "loss.distill_top_k=1",
                              "loss.distill_alpha=1.5", "loss.distill_temperature=0",
                              "loss.distill_temperature=1e-30", "loss.distill_temperature=1e30"}) {
    EXPECT_EQ(LoadConfig("", {"loss.name=distill", setting}).status().code(),
              absl::StatusCode::kInvalidArgument)
        << setting;
  }
}

TEST(ConfigTest, WrongTypesAndValues) {
  for (const char* setting : {"steps=ten",
                              "steps=1.5",
                              "steps=0",
                              "steps=-1",
                              "steps=99999999999999999999",
                              "steps=",
                              "batch_size=0",
                              "batch_size=-4",
                              "batch_size=4000000000 ",
                              "max_target_length=1",
                              "max_target_length=0",
                              "gradient_accumulation_steps=0",
                              "packing=yes",
                              "seed=-1",
                              "learning_rate=nan",
                              "learning_rate=-1",
                              "lr_schedule=step",
                              "dtype=int8",
                              "dtype=f16",
                              "remat_policy=some",
                              "temperature=-1",
                              "top_p=0",
                              "top_k=-1",
                              "max_new_tokens=0",
                              "max_inflight_computations=0",
                              "log_period=0",
                              "checkpoint_period=-1",
                              "opt_type=adamx",
                              "adam_b1=1",
                              "loss.label_smoothing=1",
                              "loss.label_smoothing=1e-40",

                              "steps",
                              "=3"}) {
    EXPECT_EQ(SettingError(setting).code(), absl::StatusCode::kInvalidArgument)
        << setting << ": " << SettingError(setting);
  }
  EXPECT_EQ(
      LoadConfig("", {"batch_size=9000000000000000000", "max_target_length=1024"}).status().code(),
      absl::StatusCode::kInvalidArgument);
}

TEST(ConfigTest, ASettingOfAnotherOptimizerIsAnError) {
  const auto message = [](const std::vector<std::string>& settings) {
    return std::string(LoadConfig("", settings).status().message());
  };
  EXPECT_EQ(message({"opt_type=sgd", "adam_b1=0.8"}),
            "adam_b1=0.8 belongs to opt_type=adamw or muon, and opt_type is sgd: leave it at 0.9, "
            "or use another opt_type");
  EXPECT_THAT(message({"muon_scale=keller"}), HasSubstr("belongs to opt_type=muon, and opt_type "));
  EXPECT_THAT(message({"opt_type=sgd", "weight_decay_parameters=*"}),
              HasSubstr("leave it at \"\""));
  // Nor does what says which parameters decay, where none does.
  EXPECT_THAT(message({"opt_type=adafactor", "weight_decay_parameters=*"}),
              HasSubstr("nothing does with adafactor_weight_decay_rate=0: give that a value"));
  EXPECT_THAT(message({"opt_type=muon", "adam_weight_decay=0", "weight_decay_parameters=*"}),
              HasSubstr("nothing does with adam_weight_decay=0"));
  EXPECT_EQ(message({"opt_type=adafactor", "weight_decay_parameters=*",
                     "adafactor_weight_decay_rate=0.1"}),
            "");
  // What is said of it anyway, as in a run's config.yaml.
  EXPECT_EQ(message({"opt_type=sgd", "adam_b1=0.9", "adam_weight_decay=0"}), "");
  for (const OptimizerKey& key : OptimizerKeys()) {
    bool found = false;
    for (const ConfigField& field : ConfigFields())
      found = found || field.key == std::string(key.key);
    EXPECT_TRUE(found) << key.key;
  }
}

TEST(ConfigTest, ASettingThatHasNothingToWorkOnIsAnError) {
  const auto model = OpenModel("random:tiny-llama:1");
  ASSERT_TRUE(model.ok()) << model.status();
  const auto message = [&](const char* trainable) {
    const auto config =
        LoadConfig("", {"opt_type=muon", std::string("trainable_parameters=") + trainable});
    EXPECT_TRUE(config.ok()) << config.status();
    return std::string(StepParams::Create(*model->model, config->engine).status().message());
  };
  EXPECT_EQ(message("*norm*,embed_tokens.*"),
            "opt_type=muon makes the updates of hidden matrices orthogonal, and "
            "trainable_parameters=*norm*,embed_tokens.* trains none: use opt_type=adamw, as which "
            "it would train these");
  EXPECT_EQ(message("*norm*,*.q_proj.*"), "");
  MeshSettings mesh;
  mesh.check_replicas = true;
  EXPECT_THAT(std::string(mesh.Resolve(1).status().message()),
              HasSubstr("check_replicas=true compares the copies that several devices hold"));
}

TEST(ConfigTest, ASettingOfAnotherScheduleOrOfNoSpikesIsAnError) {
  const auto message = [](const std::vector<std::string>& settings) {
    return std::string(LoadConfig("", settings).status().message());
  };
  EXPECT_EQ(message({"wsd_decay_steps_fraction=0.2"}),
            "wsd_decay_steps_fraction=0.2 belongs to lr_schedule=wsd, and lr_schedule is cosine: "
            "leave it at 0.1, or give lr_schedule=wsd");
  EXPECT_THAT(message({"lr_schedule=constant", "learning_rate_final_fraction=0.5"}),
              HasSubstr("belongs to lr_schedule=linear or cosine or wsd, and lr_schedule is "));
  EXPECT_EQ(message({"lr_schedule=linear", "learning_rate_final_fraction=0.5"}), "");
  for (const char* setting : {"skip_step_interval=5", "skip_step_scaling_factor=2"}) {
    EXPECT_THAT(message({setting}), HasSubstr("or give skip_step_on_spikes=true")) << setting;
    EXPECT_EQ(message({setting, "skip_step_on_spikes=true"}), "") << setting;
  }
  EXPECT_EQ(message({"lr_schedule=constant", "learning_rate_final_fraction=0.1",
                     "skip_step_interval=128"}),
            "");
}

TEST(ConfigTest, DamagedYaml) {
  EXPECT_THAT(std::string(YamlError("steps: [1, 2]\n").message()), StartsWith("c.yaml:1: steps"));
  EXPECT_THAT(std::string(YamlError("steps: 1\n\nsteps: 2\n").message()),
              HasSubstr("c.yaml:3: steps is given twice"));
  for (const char* yaml : {"loss: 3\n", "loss: [z_loss]\n", "loss:\n"}) {
    EXPECT_THAT(std::string(YamlError(yaml).message()),
                HasSubstr("c.yaml:1: loss has no value of its own but the keys loss.name, "))
        << yaml;
  }
  EXPECT_THAT(std::string(YamlError("a: {b\n").message()), StartsWith("c.yaml:"));
  EXPECT_THAT(std::string(YamlError("a: &a {b: *a}\n").message()), HasSubstr("nested"));
  EXPECT_THAT(std::string(YamlError("- steps\n").message()), HasSubstr("map"));
  EXPECT_THAT(std::string(YamlError("steps:\n").message()),
              HasSubstr("steps takes one value, not nothing"));
  EXPECT_THAT(std::string(YamlError("steps: [2]\n").message()),
              HasSubstr("steps takes one value, not a list"));
  EXPECT_THAT(std::string(YamlError("stepz: [2]\n").message()), HasSubstr("unknown key 'stepz'"));
  EXPECT_THAT(std::string(YamlError("steps: 1\n---\nsteps: 2\n").message()),
              HasSubstr("2 YAML documents where one is expected"));
  EXPECT_THAT(std::string(YamlError(std::string("steps: 1\nseed: 2\0\n", 18)).message()),
              HasSubstr("c.yaml:2: there is a NUL byte"));
  EXPECT_TRUE(YamlError("").ok());
  EXPECT_TRUE(YamlError("---\nsteps: 2\n").ok());
  EXPECT_TRUE(YamlError("# nothing\n").ok());
  EXPECT_EQ(LoadConfig("/nowhere/c.yaml", {}).status().code(), absl::StatusCode::kNotFound);
}

TEST(ConfigTest, ReferencePage) { ExpectGolden(ConfigMarkdown(), "docs/config.md"); }

}  // namespace
}  // namespace mw::train
