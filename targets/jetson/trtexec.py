"""``trtexec`` command lines for each JetPack: the same engines without Python, and a second opinion on latency."""

from collections.abc import Iterable

from hmerctl.runtime.engines.tensorrt_build import Profile, ProfileSet
from hmerctl.targets.jetson.jetpacks import JETPACKS, JetPack


def trtexec_script(jetpack: JetPack, components: Iterable[tuple[str, str]], profiles: ProfileSet) -> str:
    """A shell script that builds every engine of a bundle into its working directory.

    Args:
        components: role and file of each graph.
        profiles: of the bundle.
    """
    version = ".".join(map(str, jetpack.tensorrt))
    lines = [
        "#!/bin/sh",
        f"# JetPack {jetpack.releases}, TensorRT {version}. Run in the bundle's folder, on the device.",
        "# Precision stands in the graphs; no precision flag belongs here.",
        "set -e",
        "trtexec=${TRTEXEC:-/usr/src/tensorrt/bin/trtexec}",
        "",
    ]
    for role, file in components:
        lines += [trtexec_line(jetpack, file, f"{role}.plan", getattr(profiles, role)), ""]
    return "\n".join(lines)


def trtexec_line(jetpack: JetPack, onnx: str, plan: str, profiles: tuple[Profile, ...]) -> str:
    """One command, a flag a line."""
    flags = [f"--onnx={onnx}", f"--saveEngine={plan}", "--noTF32", "--useCudaGraph", "--skipInference"]
    if jetpack.typed_flag:
        flags.append("--stronglyTyped")
    for index, profile in enumerate(profiles):
        if len(profiles) > 1:
            flags.append(f"--profile={index}")
        for flag, shapes in (("min", profile.minimum), ("opt", profile.typical), ("max", profile.maximum)):
            text = ",".join(f"{name}:{'x'.join(map(str, shape))}" for name, shape in shapes.items())
            flags.append(f"--{flag}Shapes={text}")
    return " \\\n  ".join(['"$trtexec"', *flags])


def script_name(jetpack: JetPack) -> str:
    """Name of a JetPack's script in the bundle."""
    return f"trtexec/jetpack-{jetpack.releases.split(',')[0]}.sh"


ALL = tuple((jetpack, script_name(jetpack)) for jetpack in JETPACKS)
"""Every JetPack with its script's name."""
