# Two commands: `make run` and `make test`. Each installs what it needs (Debian 12), builds and does its work.
PRESET ?= cpu
BUILD  := build/$(PRESET)
# Two jobs unless told otherwise: gRPC's headers take about 1 GiB a compiler.
JOBS   ?= 2
# A GGUF file of your own instead of the default model: make run MODEL=path
MODEL  ?=

# How much make simtest simulates, and from which seed on.
REQUESTS ?= 200000
SEED     ?= 1

# The emulation's tests exist only where CUDA's headers do.
TSAN_TARGETS := base_test config_test engine_test frontend_test invariance_test ops_server_test runner_test telemetry_test \
  threaded_test tokenizer_test cuda_emulation_tests

.PHONY: help run test simtest build model asan tsan cuda gpu-bundle cuda-all lint format bench clean packages test-packages

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: packages  ## Build a release, fetch the default model, serve it, ask it a question over gRPC
	cmake --preset cpu -DBERTH_BUILD_TESTS=OFF -DBERTH_BUILD_BENCHMARKS=OFF -B build/run >/dev/null
	cmake --build build/run -j$(JOBS) --target berth_cli
	@cmake/scripts/demo.sh build/run/bin/berth "$(MODEL)"

test: test-packages  ## Build everything and pass every test
	cmake --preset $(PRESET)
	cmake --build $(BUILD) -j$(JOBS)
	@python3 cmake/scripts/fetch_model.py || [ "$$CI" != true ]
	ctest --preset $(PRESET)

build: test-packages  ## Build everything (PRESET=cpu|debug|asan|tsan)
	cmake --preset $(PRESET)
	cmake --build $(BUILD) -j$(JOBS)

model:  ## Fetch the default model into the user's cache
	@python3 cmake/scripts/fetch_model.py

asan:  ## Every test under AddressSanitizer and UndefinedBehaviorSanitizer
	$(MAKE) test PRESET=asan

tsan: test-packages  ## The threaded parts under ThreadSanitizer (gRPC's own locks are not instrumented: without it)
	cmake --preset tsan
	cmake --build build/tsan -j$(JOBS) --target $(TSAN_TARGETS)
	ctest --preset tsan

cuda:  ## The CUDA kernels through nvcc, what is in them, and their tests on a GPU if there is one
cuda-all:  ## As cuda, for every head dimension and compute capability 8.0, 8.9 and 9.0
cuda cuda-all: test-packages
	cmake --preset $@
	cmake --build build/$@ -j$(JOBS) --target cuda_tests
	ctest --preset $@

gpu-bundle: test-packages  ## What bench/gpu-check runs on a machine with a GPU, in one folder
	cmake --preset gpu-bundle
	cmake --build build/gpu-bundle -j$(JOBS) --target gpu_bundle_programs
	cmake/scripts/gpu-bundle.sh build/gpu-bundle "$$(sed -n 's/^BERTH_SHARED_DIR:PATH=//p' build/gpu-bundle/CMakeCache.txt)"

lint:  ## clang-format and clang-tidy, warnings as errors
	cmake/scripts/install-packages.sh build test lint
	cmake --preset cpu >/dev/null
	cmake --build build/cpu -j$(JOBS) --target berth_proto
	cmake/scripts/lint.py build/cpu $(JOBS)

format:  ## Rewrite the sources in the project's format
	git ls-files '*.h' '*.cc' '*.cu' | xargs -r clang-format -i

simtest: test-packages  ## Random workloads with faults against the core: REQUESTS=1000000 SEED=1
	cmake --preset $(PRESET) >/dev/null
	cmake --build $(BUILD) -j$(JOBS) --target simtest
	REQUESTS=$(REQUESTS) SEED=$(SEED) $(BUILD)/bin/simtest

clean:  ## Remove what was built
	rm -rf build

packages:
	@cmake/scripts/install-packages.sh build

test-packages:
	@cmake/scripts/install-packages.sh build test
