# The few commands that a person needs; the build itself is CMake's (presets in CMakePresets.json).
#   make demo      install what is missing, build, train a convolutional network on real images
#   make check     install what is missing, build, run every test: sanitizers, a minute of fuzzing, linters, valgrind too
#   make check-kernels  all op cases on OpenCL, under oclgrind too
#   make           build; make bench, fuzz, lint, sanitize, valgrind, format, install, clean do what they say

# The convolutional network of `make demo`; scripts/demo adds the data.
DEMO_TRAIN = train --model cnn:32,64 --epochs 3 --val test

JOBS := $(shell nproc 2>/dev/null || echo 2)
PREFIX = /usr/local
CTEST = ctest --output-on-failure --timeout 1500 -j $(JOBS)
FUZZ_SECONDS = 3600

.PHONY: all build demo check check-kernels bench fuzz lint sanitize valgrind format install clean

all: build

build:
	@scripts/deps build
	@scripts/build release -DSWOOP_TESTS=OFF

demo:
	@scripts/deps demo
	@scripts/build release -DSWOOP_TESTS=OFF
	@scripts/demo build/release/swoop $(DEMO_TRAIN)

check:
	@scripts/deps check
	@scripts/build check
	$(CTEST) --test-dir build/check

# Every case of the op tests on OpenCL, both kinds of kernels, and under oclgrind: hours on a slow machine.
check-kernels:
	@scripts/deps check
	@scripts/build check
	scripts/checks/kernels $(CURDIR) build/check all

bench: build
	bench/run build/release

fuzz:
	@scripts/deps check
	@scripts/build fuzz
	scripts/checks/fuzz $(CURDIR) build/fuzz $(FUZZ_SECONDS)

lint sanitize valgrind:
	@scripts/deps check
	@scripts/build check
	SWOOP_SANITIZE=all SWOOP_TIDY=any $(CTEST) --test-dir build/check -L $@

format:
	clang-format -i $$(find include src cli tests examples -name '*.[ch]')

install: build
	cmake --install build/release --prefix $(PREFIX) --strip

clean:
	rm -rf build
