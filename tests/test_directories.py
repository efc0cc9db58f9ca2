"""Directories and files of ours: no other user of the machine can read, change or exchange them."""

from __future__ import annotations

import ctypes
import os
import resource
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.second_user import OTHER, acting, does, given, reachable, two_users
from tsnb.config import private_directory, runtime_directory
from tsnb.errors import TsnbError
from tsnb.private import directories
from tsnb.private.directories import Unsafe, check_parents, make_private
from tsnb.private.files import open_private, read_private, replace_file, write_private

CLONE_NEWUSER, CLONE_NEWNS, PR_SET_DUMPABLE = 0x10000000, 0x20000, 4
MS_BIND, MS_PRIVATE_ALL = 0x1000, 0x44000


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that others can enter, and only we can write to."""
    with tempfile.TemporaryDirectory(prefix="tsnb-test-") as name:
        yield reachable(Path(name))


# -- the runtime directory ----------------------------------------------------------------------------------------


@two_users
def test_a_runtime_directory_below_somebody_elses_is_left_alone(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After `su` XDG_RUNTIME_DIR is another user's, who exchanges what is in it: what is read is still ours."""
    theirs = given(place / "xdg", 0o700)
    monkeypatch.delenv("TSNB_RUNTIME_DIR")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(theirs))
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    found = runtime_directory()
    write_private(found / "note", "ours")
    does(
        """
        place = sys.argv[1]
        if os.path.isdir(f"{place}/tsnb"):
            os.rename(f"{place}/tsnb", f"{place}/away")
        os.mkdir(f"{place}/tsnb", 0o755)
        open(f"{place}/tsnb/note", "w").write("theirs")
        """,
        theirs,
    )
    assert (found / "note").read_text() == "ours"
    assert runtime_directory() == found == place / f"tsnb-{os.getuid()}"


@two_users
@pytest.mark.parametrize("made", ["os.mkdir(at, 0o755)", "os.symlink('/tmp', at)", "open(at, 'w')"])
def test_a_name_that_another_user_took_first_keeps_nobody_out(
    place: Path, monkeypatch: pytest.MonkeyPatch, made: str
) -> None:
    """Whoever makes `tsnb-UID` in /tmp first: all processes go to one place beside it, and stay there."""
    place.chmod(0o1777)
    monkeypatch.delenv("TSNB_RUNTIME_DIR")
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    does(f"at = sys.argv[1]; {made}", place / f"tsnb-{os.getuid()}")
    ask, tell = os.pipe()
    children = []
    for _ in range(6):
        if not (child := os.fork()):
            os.write(tell, f"{runtime_directory()}\n".encode())
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    os.close(tell)
    said = {*os.read(ask, 10_000).decode().split()}
    os.close(ask)
    found = runtime_directory()
    assert said == {str(found)} and found.parent == place and found.stat().st_mode & 0o777 == 0o700
    does(
        "at = sys.argv[1]\n(os.rmdir if os.path.isdir(at) and not os.path.islink(at) else os.unlink)(at)",
        place / f"tsnb-{os.getuid()}",
    )
    assert runtime_directory() == found


def test_a_process_without_descriptors_looks_nowhere_else(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would find no stream there, and serve one of a name that is taken: it is told instead, or knows already."""
    own = make_private(place / "xdg")
    monkeypatch.delenv("TSNB_RUNTIME_DIR")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(own))
    with no_descriptors(), pytest.raises(TsnbError, match="ulimit -n"):
        runtime_directory()
    found = runtime_directory()
    assert found == own / "tsnb"
    with no_descriptors():
        assert runtime_directory() == found


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Let this process open nothing."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with open(os.devnull) as lowest:
        number = lowest.fileno()
    resource.setrlimit(resource.RLIMIT_NOFILE, (number, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@two_users
@pytest.mark.parametrize("mode", [0o755, 0o1777])
def test_a_chosen_runtime_directory_below_somebody_elses_is_refused(
    place: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    """A sticky bit does not bind the owner; the message says whose directory it is, and what to do."""
    monkeypatch.setenv("TSNB_RUNTIME_DIR", str(given(place / "theirs", mode) / "run"))
    with pytest.raises(TsnbError, match=r"theirs belongs to nobody \(user 65534\).*Set TSNB_RUNTIME_DIR"):
        runtime_directory()


@pytest.mark.parametrize(
    ("mode", "command"), [(0o777, "chmod go-w"), (0o757, "chmod o-w"), (0o770, ""), (0o1777, ""), (0o755, "")]
)
def test_a_directory_that_others_may_write_to_is_refused_with_the_command_that_mends_it(
    place: Path, mode: int, command: str
) -> None:
    """They could exchange what lies in it. A sticky one is safe, and one's own group is oneself."""
    above = place / "shared"
    above.mkdir()
    above.chmod(mode)
    if command:
        with pytest.raises(TsnbError, match=f"`{command} {above}`"):
            private_directory(above / "run")
        os.system(f"{command} {above}")
    assert private_directory(above / "run").stat().st_mode & 0o777 == 0o700


@two_users
def test_a_group_with_others_in_it_counts_as_others(place: Path) -> None:
    """Whether by the list of members or as somebody's main group."""
    above = place / "team"
    above.mkdir()
    os.chown(above, 0, OTHER)
    above.chmod(0o775)
    with pytest.raises(Unsafe, match="can be written by other users"):
        make_private(above / "run")


@two_users
@pytest.mark.parametrize("group", [0, 4321])
def test_a_group_that_may_have_unseen_members_counts_as_others(place: Path, group: int) -> None:
    """Root's group has members on many systems; who has a group as main one, a directory service need not tell."""
    above = place / "team"
    above.mkdir()
    os.chown(above, 0, group)
    above.chmod(0o775)
    with groups(f"root:x:0:eve\ndomain:x:{group}:\n" if group else "root:x:0:eve\n"):
        with pytest.raises(Unsafe, match="can be written by other users"):
            make_private(above / "run")
        with pytest.raises(Unsafe, match="can be written by other users"):
            open_private(above / "file", os.O_CREAT | os.O_WRONLY)


@contextmanager
def groups(table: str) -> Iterator[None]:
    """Have this system know these groups, in a mount namespace of this process."""
    before = os.open("/proc/self/ns/mnt", os.O_RDONLY)
    system = ctypes.CDLL(None, use_errno=True)
    if system.unshare(CLONE_NEWNS) or system.mount(b"none", b"/", None, MS_PRIVATE_ALL, None):
        pytest.skip("no mount namespaces here")
    with tempfile.NamedTemporaryFile("w", suffix="group") as file:
        file.write(table)
        file.flush()
        try:
            assert not system.mount(file.name.encode(), b"/etc/group", None, MS_BIND, None)
            yield
        finally:
            assert not system.setns(before, CLONE_NEWNS), os.strerror(ctypes.get_errno())
            os.close(before)


def test_a_loose_directory_of_ones_own_names_chmod(place: Path) -> None:
    """Mode 0755: others could look up what is served, and by which sockets."""
    loose = place / "it's loose"
    loose.mkdir(mode=0o755)
    with pytest.raises(TsnbError, match="`chmod 700 ") as refused:
        private_directory(loose)
    os.system(str(refused.value).split("`")[1])
    assert private_directory(loose) == loose


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_what_is_made_is_private_under_any_umask(place: Path, umask: int) -> None:
    """Those made on the way, too."""
    before = os.umask(umask)
    try:
        made = make_private(place / "a" / "b")
        write_private(made / "whole", "text")
        os.close(open_private(made / "opened", os.O_CREAT | os.O_WRONLY))
        replace_file(place / "asked-for", "text")
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in place.rglob("*")}
    assert modes == {"a": 0o700, "b": 0o700, "whole": 0o600, "opened": 0o600, "asked-for": 0o600}


def test_links_of_ones_own_on_the_way_are_followed_and_the_last_part_is_none(place: Path) -> None:
    """Homes are often links; our directory itself is made by us, so that a link there is somebody's doing."""
    (place / "real" / "deep").mkdir(parents=True)
    (place / "home").symlink_to("real/../real/deep")
    (place / "far").symlink_to(place / "real")
    assert make_private(place / "home" / "run").is_dir()
    assert (place / "real" / "deep" / "run").is_dir()
    make_private(place / "far" / "other")
    (place / "last").symlink_to(place / "real" / "other")
    with pytest.raises(Unsafe, match="is a link") as refused:
        make_private(place / "last")
    assert refused.value.mend == f"rm {place / 'last'}"
    (place / "circle").symlink_to("circle")
    with pytest.raises(OSError, match="symbolic links"):
        make_private(place / "circle" / "run")


@two_users
def test_a_link_that_somebody_else_put_is_not_followed(place: Path) -> None:
    """In /tmp anybody may put one."""
    shared = place / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    (place / "mine").mkdir(mode=0o700)
    does("os.symlink(sys.argv[1], sys.argv[2])", place / "mine", shared / "link")
    with pytest.raises(Unsafe, match=r"link is a link of nobody \(user 65534\)"):
        make_private(shared / "link" / "run")
    does("os.mkdir(sys.argv[1], 0o700)", shared / "taken")
    with pytest.raises(Unsafe, match="is not your own directory: it belongs to nobody"):
        make_private(shared / "taken")


def test_a_directory_that_passed_is_looked_at_again_without_a_descriptor(place: Path) -> None:
    """A producer without descriptors still takes its entry out; one that was exchanged or opened is looked at anew."""
    made = make_private(place / "run")
    made.chmod(0o755)
    with pytest.raises(Unsafe, match="0755"):
        make_private(made)
    made.chmod(0o700)
    place.chmod(0o777)
    assert make_private(made) == made, "known: only we could have opened what is above it"
    made.rename(place / "away")
    (place / "run").mkdir(mode=0o700)
    with pytest.raises(Unsafe, match="can be written by other users"):
        make_private(made)
    place.chmod(0o711)


def in_a_user_namespace(work: Callable[[], object]) -> str:
    """Become the second user, in a namespace where the real root has no number; say how it went."""
    os.setgroups([])
    os.setgid(OTHER)
    os.setuid(OTHER)
    system = ctypes.CDLL(None)
    system.prctl(PR_SET_DUMPABLE, 1)  # who has changed its uid may not write to its own /proc else
    if system.unshare(CLONE_NEWUSER):
        return "not permitted"
    Path("/proc/self/uid_map").write_text(f"1000 {OTHER} 1")
    work()
    return f"done, and the root is {Path('/').stat().st_uid}'s"


def told_from_a_user_namespace(work: Callable[[], object]) -> str:
    """Do something there in a process of its own; return how it went."""
    answer, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(answer)
        try:
            os.write(tell, in_a_user_namespace(work).encode())
        except BaseException as error:  # noqa: BLE001 (told to the test)
            os.write(tell, repr(error).encode())
        os._exit(0)
    os.close(tell)
    os.waitpid(child, 0)
    said = os.read(answer, 1000).decode()
    os.close(answer)
    if said == "not permitted":
        pytest.skip("no user namespaces here")
    return said


@pytest.fixture
def below_tmp() -> Iterator[Path]:
    """A directory right below /tmp, which only root could have put under another user's."""
    with tempfile.TemporaryDirectory(prefix="tsnb-test-", dir="/tmp") as name:
        yield reachable(Path(name))


@two_users
def test_in_a_user_namespace_the_owner_of_the_root_counts_as_root(below_tmp: Path) -> None:
    """There the real root is called nobody: rootless containers, sandboxes."""
    own = given(below_tmp, 0o700)
    said = told_from_a_user_namespace(lambda: make_private(own / "run"))
    assert said == "done, and the root is 65534's"


@two_users
@pytest.mark.parametrize("what", ["directory", "link"])
def test_in_a_user_namespace_another_user_does_not_count_as_root(below_tmp: Path, what: str) -> None:
    """Another user is called nobody there, too; whoever owns a directory above ours can exchange it."""
    given(below_tmp / "real", 0o700)
    theirs = below_tmp / "real"
    if what == "link":
        theirs = below_tmp / "link"
        theirs.symlink_to("real")
        os.lchown(theirs, OTHER - 1, OTHER - 1)
    os.chown(below_tmp, OTHER if what == "link" else OTHER - 1, OTHER)
    said = told_from_a_user_namespace(lambda: make_private(theirs / "run"))
    assert said.startswith("Unsafe") and "nobody" in said and ("is a link of" in said) == (what == "link"), (
        said
    )


# -- files --------------------------------------------------------------------------------------------------------


def as_link(path: Path, target: Path) -> None:
    path.symlink_to(target)


def as_hard_link(path: Path, target: Path) -> None:
    path.hardlink_to(target)


def as_pipe(path: Path, target: Path) -> None:
    os.mkfifo(path)


def as_other_users(path: Path, target: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can make a file somebody else's")
    path.write_text("theirs")
    os.chown(path, OTHER, OTHER)


@pytest.mark.parametrize("plant", [as_link, as_hard_link, as_pipe, as_other_users])
@pytest.mark.parametrize(
    "use",
    [
        lambda path: os.close(open_private(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)),
        lambda path: os.close(open_private(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)),
        read_private,
    ],
    ids=["cut", "append", "read"],
)
def test_a_planted_file_is_refused_before_anything_is_cut_or_read(
    place: Path, plant: Callable[[Path, Path], None], use: Callable[[Path], object]
) -> None:
    """A link, a hard link, a pipe that nobody reads, another user's file: nothing waits, nothing elsewhere changes."""
    target = place / "precious"
    target.write_text("precious")
    own = make_private(place / "own")
    plant(own / "log", target)
    with pytest.raises((Unsafe, OSError)) as refused:
        use(own / "log")
    assert str(own / "log") in str(refused.value) or "No such device" in str(refused.value)
    assert target.read_text() == "precious"


def test_what_is_written_whole_takes_the_place_of_a_link(place: Path) -> None:
    """It is not followed; and a file of the user's that was open to others stays so."""
    target = place / "precious"
    target.write_text("precious")
    own = make_private(place / "own")
    for write in (write_private, replace_file):
        (own / "entry").unlink(missing_ok=True)
        (own / "entry").symlink_to(target)
        write(own / "entry", "new")
        assert (own / "entry").read_text() == "new"
        assert not (own / "entry").is_symlink()
    assert target.read_text() == "precious"
    (place / "page.html").write_text("old")
    (place / "page.html").chmod(0o644)
    replace_file(place / "page.html", "new")
    assert (place / "page.html").stat().st_mode & 0o777 == 0o644
    assert sorted(path.name for path in place.iterdir()) == ["own", "page.html", "precious"]


@two_users
def test_a_directory_exchanged_between_look_and_use_is_never_written_through(place: Path) -> None:
    """The second user owns the directory above and exchanges ours for a link, thousands of times a second."""
    theirs = given(place / "theirs", 0o777)
    (place / "precious").mkdir()
    (place / "precious" / "log").write_text("precious")
    (theirs / "own").mkdir(mode=0o700)
    with acting(
        """
        theirs, precious = sys.argv[1:]
        os.chdir(theirs)
        os.symlink(precious, "link")
        print("begun", flush=True)
        while True:
            os.rename("own", "away"); os.rename("link", "own")
            os.rename("own", "link"); os.rename("away", "own")
        """,
        theirs,
        place / "precious",
    ):
        refused = written = 0
        for _ in range(800):
            try:
                descriptor = open_private(theirs / "own" / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            except (Unsafe, OSError):
                refused += 1
            else:
                os.write(descriptor, b"x")
                os.close(descriptor)
                written += 1
            with pytest.raises((Unsafe, OSError)):
                make_private(theirs / "own")
    assert refused and written, (refused, written)
    assert (place / "precious" / "log").read_text() == "precious"
    assert not [key for key in directories._known if "own" in key and "theirs" in key]
    with pytest.raises(Unsafe, match="belongs to nobody"):
        check_parents(theirs)
