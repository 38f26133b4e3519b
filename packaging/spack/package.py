# A Spack package of ddp: in a repository of packages as packages/ddp/package.py. Not tried: Spack was not at hand.
#
#   spack install --no-checksum ddp      with the tarball of tools/release.sh in the current directory
import os

from spack.package import *


class Ddp(CMakePackage):
    """Launcher for multi-process training, in torchrun's place, and a data-parallel runtime for C++ and C."""

    url = f"file://{os.getcwd()}/ddp-0.1.0.tar.gz"

    license("Apache-2.0")

    version("0.1.0")

    variant("shared", default=True, description="Build libddp.so, else libddp.a")
    variant("cuda", default=False, description="GPUs, and NCCL's backend")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("ninja", type="build")
    depends_on("boost@1.81: +program_options")
    depends_on("nlohmann-json@3.10:")
    depends_on("spdlog@1.9:")
    depends_on("cuda@12:", when="+cuda")
    depends_on("nccl", when="+cuda")

    conflicts("platform=darwin", msg="ddp needs Linux 5.4 or later")
    conflicts("platform=windows", msg="ddp needs Linux 5.4 or later")

    generator("ninja")

    def cmake_args(self):
        return [
            self.define_from_variant("BUILD_SHARED_LIBS", "shared"),
            self.define_from_variant("DDP_WITH_CUDA", "cuda"),
            self.define("DDP_WITH_GLOO", False),
            self.define("DDP_WITH_UCX", False),
            self.define("DDP_BUILD_TESTS", False),
            self.define("DDP_BUILD_EXAMPLES", False),
            self.define("DDP_WITH_TORCH", False),
        ]

    def test_launch(self):
        """starts two workers"""
        launcher = which(join_path(self.prefix.bin, "ddp-launch"))
        launcher("--no-python", "--nproc-per-node=2", "true")
