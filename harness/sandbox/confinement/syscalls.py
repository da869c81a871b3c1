"""The system calls that a guest is refused, by name, and the arguments that count where a call has many uses.

A call is listed for one of three reasons: no agent needs it and it opens a way out or a large part of the
kernel; it makes kernel memory that no count of a process shows; or it changes or asks the state of an object that
guests share, so that two of them could talk. The numbers are checked against the kernel's headers.
"""

from __future__ import annotations

from collections.abc import Mapping

# name -> (x86_64, aarch64); None where the platform has no such call
DENIED: Mapping[str, tuple[int | None, int | None]] = {
    # other processes' memory
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    # mounts, roots and namespaces
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "statmount": (457, 457),
    "listmount": (458, 458),
    # large kernel attack surface
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "perf_event_open": (298, 241),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "fanotify_init": (300, 262),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    # keyrings
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # modules, kexec, machine state, clocks
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "acct": (163, 89),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "syslog": (103, 116),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "lookup_dcookie": (212, 18),
    "vhangup": (153, 58),
    "nfsservctl": (180, 42),
    "personality": (135, 92),
    "iopl": (172, None),
    "ioperm": (173, None),
    "uselib": (134, None),
    "modify_ldt": (154, None),
    # placement of memory
    "move_pages": (279, 239),
    "mbind": (237, 235),
    "migrate_pages": (256, 238),
    "set_mempolicy": (238, 237),
    "set_mempolicy_home_node": (450, 450),
    # files outside every mount, device nodes, execution by descriptor
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "execveat": (322, 281),
    # System V and POSIX messages: kernel objects that outlive their maker
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "semctl": (66, 191),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    # watches and locks on files: those of the guest root are every guest's
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "inotify_add_watch": (254, 27),
    "inotify_rm_watch": (255, 28),
    "fanotify_mark": (301, 263),
    "flock": (73, 32),
    # sockets beyond a pair: a queue of connections, a larger buffer, a file in flight are in no table
    "connect": (42, 203),
    "bind": (49, 200),
    "listen": (50, 201),
    "accept": (43, 202),
    "accept4": (288, 242),
    "sendmsg": (46, 211),
    "sendmmsg": (307, 269),
    "setsockopt": (54, 208),
    # pages that a pipe or a socket holds on to after their file is gone
    "splice": (275, 76),
    "tee": (276, 77),
    "vmsplice": (278, 75),
    "sendfile": (40, 71),
    # counters of the whole host, and what it holds in its cache
    "sysinfo": (99, 179),
    "mincore": (27, 232),
    "cachestat": (451, 451),
    "fadvise64": (221, 223),
    "readahead": (187, 213),
    # the confinement itself
    "seccomp": (317, 277),
    "landlock_create_ruleset": (444, 444),
    "lsm_get_self_attr": (459, 459),
    "lsm_set_self_attr": (460, 460),
    "lsm_list_modules": (461, 461),
}

# Without namespaces of its own a guest shares the kernel's objects with the host, and Landlock knows neither signals
# sent by limits nor the free space of a disk that all guests write to.
DENIED_WITHOUT_NAMESPACES: Mapping[str, tuple[int | None, int | None]] = {
    "statfs": (137, 43),
    "fstatfs": (138, 44),
    "truncate": (76, 45),  # Landlock knows it from ABI 3; ftruncate needs an open file
    "ioprio_set": (251, 30),
    "process_mrelease": (448, 448),
}
# With the host's own uid: Landlock does not mediate attributes, and the guest would own every file of the host's user.
DENIED_WITH_HOST_UID: Mapping[str, tuple[int | None, int | None]] = {
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "lchown": (94, None),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "setxattrat": (463, 463),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "removexattrat": (466, 466),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "file_setattr": (469, 469),
}
# Calls that name a process, and the arguments that must be 0: the caller itself.
SELF_ONLY: Mapping[str, tuple[tuple[int, int], tuple[int, ...]]] = {
    "prlimit64": ((302, 261), (0,)),
    "sched_setaffinity": ((203, 122), (0,)),
    "sched_setscheduler": ((144, 119), (0,)),
    "sched_setparam": ((142, 118), (0,)),
    "sched_setattr": ((314, 274), (0,)),
    "setpriority": ((141, 140), (0, 1)),
}
# What an interpreter asks of files, pipes and socket pairs: TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX.
HARMLESS_IOCTLS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
# F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_QUERY and F_DUPFD_CLOEXEC. Left out: locks, leases, watches and
# hints, which an inode keeps for everybody, and the size of a pipe.
HARMLESS_FCNTLS = (0, 1, 2, 3, 4, 1027, 1030)
# PR_SET_PDEATHSIG: to outlive its supervisor. PR_SET_DUMPABLE: to hide its open files from a host without privileges.
# PR_SET_SECCOMP: programs in kernel memory. PR_SET_MEMORY_MERGE: pages shared with others, as MADV_MERGEABLE.
REFUSED_PRCTLS = (1, 4, 22, 67)
# MADV_MERGEABLE, and MADV_COLD and MADV_PAGEOUT, which put pages where no count of resident memory sees them.
REFUSED_ADVICE = (12, 20, 21)
