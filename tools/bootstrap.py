"""Makes .venv what requirements.lock says, and sees that there is a Java: `make` runs it before every target.

Needs nothing but a bare Python; its syntax is old on purpose, so that an old one still reads the refusal.
Done again it costs a few milliseconds; killed half way it begins anew; two at once wait for each other.
"""

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, ".venv")
PYTHON = os.path.join(VENV, "bin", "python")
STAMP = os.path.join(VENV, "kafka_assets.stamp")
LOCK = os.path.join(ROOT, "requirements.lock")
# Not the environment's own Python, where one is switched on: it may be the one that is removed.
BASE = getattr(sys, "_base_executable", sys.executable)
OLDEST, NEWEST = (3, 11), (3, 13)
# They would send packages elsewhere or change which ones; how the index is reached stays as the machine has it.
FOREIGN = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "PIP_NO_DEPS", "PIP_CONSTRAINT", "PIP_REQUIREMENT")
FOREIGN += ("PIP_REQUIRE_VIRTUALENV", "PIP_PYTHON", "PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV", "UV_CONSTRAINT")


def main():
    refuse_platform()
    use_right_python()
    for name in FOREIGN:
        os.environ.pop(name, None)
    with open(os.path.abspath(__file__)) as this:
        # The lock is on this file itself: it needs no place of its own, and ends with its holder.
        try:
            fcntl.flock(this, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say("another set-up is at work here; waiting for it")
            fcntl.flock(this, fcntl.LOCK_EX)
        set_up()


def set_up():
    packages = digest([LOCK, os.path.abspath(__file__)])
    project = digest([os.path.join(ROOT, "pyproject.toml"), os.path.join(ROOT, "setup.py")])
    done = read_stamp()
    if done == [packages, project] and os.access(PYTHON, os.X_OK):
        return
    if done[:1] != [packages] or not os.access(PYTHON, os.X_OK):
        install_packages()
    elif os.path.exists(STAMP):
        os.remove(STAMP)
    install_project()
    require_java()
    with open(STAMP + ".new", "w") as file:
        file.write(packages + "\n" + project + "\n")
    os.rename(STAMP + ".new", STAMP)


def refuse_platform():
    system, machine = platform.system(), platform.machine()
    if (system, machine) != ("Linux", "x86_64"):
        refuse(
            "this set-up does not work on {} {}".format(system, machine),
            "the local services are built for Linux x86-64 only",
            "use a Linux x86-64 machine, virtual machine or container",
        )


def use_right_python():
    """Go on with a Python that the lock was made for, if this one is not."""
    if OLDEST <= sys.version_info[:2] <= NEWEST:
        return
    for minor in range(NEWEST[1], OLDEST[1] - 1, -1):
        name = "python3.{}".format(minor)
        found = shutil.which(name)
        # A shim of pyenv is on PATH even where its version is not switched on.
        if found and subprocess.call([found, "-c", ""], stderr=subprocess.DEVNULL) == 0:
            os.execv(found, [found, os.path.abspath(__file__)])
    refuse(
        "Python {}.{} does not fit".format(*sys.version_info[:2]),
        "the locked packages are for Python 3.11, 3.12 and 3.13",
        "install one of them (Debian 12, Ubuntu 24.04: apt-get install python3), or name one: make PYTHON=/path/to/it",
    )


def install_packages():
    say("setting up .venv from requirements.lock (once; some minutes)")
    # An environment that is half made has no stamp; it is made anew, never mended.
    shutil.rmtree(VENV, ignore_errors=True)
    uv = shutil.which("uv")
    if uv:
        run([uv, "venv", "--quiet", "--python", BASE, VENV])
        install = [uv, "pip", "install", "--quiet", "--python", PYTHON]
    else:
        make_venv()
        install = [PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--use-pep517"]
    install += ["--no-deps", "--require-hashes"]
    # What builds comes first and from the lock, too: an isolated build would fetch whatever is newest.
    builder = os.path.join(VENV, "builder.lock")
    with open(builder, "w") as file:
        file.write(lock_entry("setuptools"))
    run(install + ["-r", builder])
    run(install + ["--no-build-isolation", "-r", LOCK])
    # Some packages carry files that are templates, not Python: those do not compile, and need not.
    command = [PYTHON, "-m", "compileall", "-q", "-j", "0", os.path.join(VENV, "lib")]
    subprocess.call(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def make_venv():
    command = [BASE, "-m", "venv", VENV]
    if subprocess.call(command, stdout=subprocess.DEVNULL) == 0:
        return
    package = "python{}.{}-venv".format(*sys.version_info[:2])
    if not apt_install([package]) or subprocess.call(command) != 0:
        refuse(
            "no virtual environment could be made",
            "`{}` fails; Debian and Ubuntu keep its parts in a package of their own".format(" ".join(command)),
            "apt-get install {} (as root), or put uv on the PATH".format(package),
        )


def install_project():
    uv = shutil.which("uv")
    install = [uv, "pip", "install", "--python", PYTHON] if uv else [PYTHON, "-m", "pip", "install"]
    run(install + ["--quiet", "--no-deps", "--no-build-isolation", "--editable", ROOT])


def require_java():
    ask = [PYTHON, "-c", "from kafka_assets.devstack.java import main; main()"]
    if subprocess.call(ask, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0:
        return
    # Debian 12 has 17 and Debian 13 has 21: either will do.
    apt_install(["openjdk-17-jre-headless"]) or apt_install(["openjdk-21-jre-headless"])
    if subprocess.call(ask) != 0:
        sys.exit(1)


def apt_install(packages):
    """Install Debian packages, where that is ours to do; False if it is not, or failed."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return False
    say("installing {} with apt".format(" ".join(packages)))
    env = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    install = ["apt-get", "install", "-qq", "-y", "--no-install-recommends"] + packages
    quiet = {"env": env, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    if subprocess.call(install, **quiet) == 0:
        return True
    return subprocess.call(["apt-get", "update", "-qq"], **quiet) == 0 and subprocess.call(install, **quiet) == 0


def lock_entry(name):
    """One package's lines of the lock: the pin and its hashes."""
    lines = []
    with open(LOCK) as file:
        for line in file:
            if line.startswith(name + "==" if not lines else "    --hash"):
                lines.append(line)
            elif lines:
                break
    # The last line of an entry ends without the backslash that joins the others.
    return "".join(lines)


def digest(paths):
    """What the contents of these files and this Python are, in one word."""
    sum_of = hashlib.sha256(repr(sys.version_info[:3]).encode())
    for path in paths:
        with open(path, "rb") as file:
            sum_of.update(file.read() + b"\0")
    return sum_of.hexdigest()


def read_stamp():
    try:
        with open(STAMP) as file:
            return file.read().split()
    except OSError:
        return []


def run(command):
    code = subprocess.call(command)
    if code != 0:
        refuse(
            "the set-up failed",
            "`{}` ended with code {}; what it said stands above".format(" ".join(command), code),
            "check the network and the disk, then run the same again: what was downloaded is kept",
        )


def say(text):
    print("· " + text, file=sys.stderr, flush=True)


def refuse(what, why, cure):
    sys.exit("error {}\n  why {}\n  do  {}".format(what, why, cure))


if __name__ == "__main__":
    main()
