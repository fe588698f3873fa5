//! Checks of shared memory, namespaces, the environment, the topology and the daemon.

use super::*;

#[test]
fn leftover_segments_are_counted() {
    let machine = n150("2.10.0");
    let shm = machine.root().join("dev/shm");
    let mut producer = Producer::new(&shm);
    producer.alloc(4096, 64);
    let report = check_machine(&machine);
    assert!(report.one("tracking", "ok").1.starts_with("1 process self-reporting"), "{}", report.page);
    producer.kill();
    let empty = "ttmem.1.00000000000000ff";
    fs::write(shm.join(empty), "").unwrap();
    let report = check_machine(&machine);
    let (_, found, remedy) = report.one("crash segments", "note");
    assert!(found.starts_with("1 segment of exited processes: "), "{found}");
    assert!(remedy.contains("ttmem dump --segment"));
    let (_, found, _) = report.one("segments", "warning");
    assert!(found.ends_with(&format!("{empty} is too short for a header")), "{found}");
}

#[test]
fn folder_for_shared_memory_is_checked() {
    let home = memory_folder();
    let folder = home.path().join("shm");
    let shown = folder.to_str().unwrap();
    let report = check_host(&["--local", "--shm-dir", shown]);
    assert!(report.one("shared memory", "broken").1.contains("No such file"), "{}", report.page);
    fs::create_dir(&folder).unwrap();
    let report = check_host(&["--local", "--shm-dir", "/proc"]);
    assert!(report.one("shared memory", "broken").1.contains("is not on a tmpfs"));
    for chosen in ["/proc", "/nowhere"] {
        let report = check_host(&["--local", "--shm-dir", chosen]);
        assert!(!report.problems().contains(&"segments"), "reported once: {}", report.page);
        assert!(!report.page.contains("remove"), "the user named the folder: {}", report.page);
        assert!(report.one("shared memory", "broken").2.contains("TTMEM_SHM_DIR"), "{}", report.page);
    }
    // Sizes as in containers.
    for (size, verdict) in [("64m", "warning"), ("256m", "ok")] {
        let script = format!("mount -t tmpfs -o size={size} none {shown} && exec \"$0\" \"$@\"");
        let through = ["unshare", "--mount", "sh", "-c", &script];
        let report = run(|args| command(&through, exe(), &[&["--local", "--shm-dir", shown], args].concat()));
        let (_, found, remedy) = report.one("shared memory", verdict);
        assert!(found.contains(" is a tmpfs: "), "{found}");
        assert_eq!(remedy.contains("--shm-size"), size == "64m");
    }
    // The permission is checked without creating a file.
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o555)).unwrap();
    let (_keep, program) = copy_for_all();
    let report =
        run(|args| command(&AS_OTHER_USER, &program, &[&["--local", "--shm-dir", shown], args].concat()));
    let denied = report.named("shared memory").into_iter().find(|it| it.1.contains("is not writable"));
    assert!(denied.is_some_and(|it| it.0 == "warning"), "{}", report.page);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
}

#[test]
fn namespaces_that_hide_processes_are_reported() {
    let folder = memory_folder();
    let shm = ["--local", "--shm-dir", folder.path().to_str().unwrap()];
    let inside = |through: &[&str]| run(|args| command(through, exe(), &[&shm[..], args].concat()));
    let report = inside(&["unshare", "--pid", "--fork", "--mount-proc"]);
    let (_, found, remedy) = report.one("processes", "note");
    assert!(
        found.contains("processes outside it are not visible") && remedy.contains("--pid=host"),
        "{found}"
    );
    let report = inside(&["unshare", "--user", "--map-root-user"]);
    assert!(report.one("permissions", "note").1.contains("root of a user namespace"), "{}", report.page);
    // With --root, processes come from the files, whatever the namespace.
    let machine = n150("2.10.0");
    let through = ["unshare", "--pid", "--fork", "--mount-proc"];
    let report =
        run(|args| command(&through, exe(), &[&["--root", machine.root().to_str().unwrap()], args].concat()));
    assert_eq!(report.one("processes", "ok").1, "as in the files below --root");
    // A process outside the reader's namespace has the device open.
    machine.set(machine.pids(0), "0\n0\n");
    let report = check_machine(&machine);
    let (_, found, remedy) = report.one("processes", "warning");
    assert!(
        found.contains("opened 2 times by processes not visible") && remedy.contains("--pid=host"),
        "{found}"
    );
}

#[test]
fn environment_variables_are_checked() {
    let machine = n150("2.10.0");
    let root = ["--root", machine.root().to_str().unwrap()];
    let with = |name: &str, value: &str| {
        run(|args| {
            let mut command = command(&[], exe(), &[&root[..], args].concat());
            command.env(name, value);
            command
        })
    };
    let report = with("TT_METAL_SHM_TRACKING_DISABLED", "1");
    assert_eq!(report.exit, 0);
    assert!(report.one("counters", "note").1.starts_with("TT_METAL_SHM_TRACKING_DISABLED is set"));
    assert_eq!(with("TT_METAL_SHM_TRACKING_DISABLED", "0").named("counters").len(), 1);
    let text = machine.root().join("text.so");
    fs::write(&text, "text").unwrap();
    for (agent, part) in [("/nowhere.so", "is not a file"), (text.to_str().unwrap(), "not a library")] {
        let report = with("TTMEM_AGENT", agent);
        assert_eq!(report.problems(), ["agent"]);
        let (_, found, remedy) = report.one("agent", "warning");
        assert!(found.contains(part) && remedy.contains("TTMEM_AGENT"), "{found}: {remedy}");
    }
    assert!(
        with("TTMEM_AGENT", exe().to_str().unwrap())
            .one("agent", "ok")
            .1
            .starts_with("`ttmem run` preloads /")
    );
}

#[test]
fn topology_is_checked() {
    let machine = cards("2.10.0", "n300", 1);
    let file = machine.root().join("cluster.yaml");
    let report = |text: &str| {
        fs::write(&file, text).unwrap();
        let args = ["--root", machine.root().to_str().unwrap(), "--topology", file.to_str().unwrap()];
        run(|more| command(&[], exe(), &[&args[..], more].concat()))
    };
    let good = "arch: {0: wormhole_b0, 1: wormhole_b0}\nchips: {0: [0,0,0,0], 1: [1,0,0,0]}\n\
                ethernet_connections: []\nchips_with_mmio: [{0: 0}]\nharvesting: {0: {noc_translation: true, \
                harvest_mask: 129}, 1: {noc_translation: true, harvest_mask: 6}}\n\
                boards: [[{board_id: 1}, {board_type: n300}, {chips: [0,1]}]]\n";
    let found = report(good);
    assert_eq!(
        (found.exit, found.one("topology", "ok").1.as_str()),
        (0, "2 devices described"),
        "{}",
        found.page
    );
    assert!(found.one("device 1", "ok").1.contains(", remote"), "{}", found.page);
    assert_eq!(found.one("cards", "ok").1, "1 device on the bus: 1 n300");
    let found = report("nonsense");
    assert_eq!((found.exit, found.problems()), (1, vec!["topology"]), "the other checks still run");
    assert!(found.named("device 0").len() == 1, "{}", found.page);
}

#[test]
fn daemon_is_checked() {
    let server = server();
    let folder = tempfile::tempdir().unwrap();
    let shm = server.segments.path().to_str().unwrap();
    let check = |query: &Path, legacy: &Path| {
        let [query, legacy] = [query, legacy].map(|path| path.to_str().unwrap());
        check_host(&["--shm-dir", shm, "--query-socket", query, "--legacy-socket", legacy])
    };
    let report = check(&server.query, &server.legacy);
    let (_, found, _) = report.one("daemon", "ok");
    assert!(found.starts_with(&format!("pid {} (ttmem, root) answers at ", server.pid())), "{found}");
    assert!(report.one("daemon", "note").1.contains("simulated"));
    assert!(report.one("old clients", "ok").1.starts_with("the daemon serves "), "{}", report.page);

    let (missing, stale, strange, file) = (
        folder.path().join("no"),
        folder.path().join("stale"),
        folder.path().join("strange"),
        folder.path().join("file"),
    );
    drop(UnixListener::bind(&stale).unwrap());
    fs::write(&file, "").unwrap();
    let report = check(&missing, &missing);
    let (_, found, remedy) = report.one("daemon", "warning");
    assert!(found.contains("not running: no answer at ") && remedy.contains("`ttmem serve`"), "{found}");
    assert!(report.one("old clients", "ok").1.starts_with("no server at "));
    let report = check(&stale, &stale);
    assert!(report.one("daemon", "note").1.ends_with("is left from a daemon that has exited"));
    assert!(report.one("old clients", "note").1.ends_with("is left from a server that has exited"));
    let listener = UnixListener::bind(&strange).unwrap();
    std::thread::spawn(move || while listener.accept().is_ok() {});
    let report = check(&strange, &strange);
    assert_eq!(report.exit, 1);
    assert!(
        report.one("daemon", "broken").1.contains("does not speak the query protocol"),
        "{}",
        report.page
    );
    let served = &report.one("old clients", "note").1;
    assert!(served.contains(&format!("is served by pid {} (", std::process::id())), "{served}");
    // A daemon of a later version with unknown values.
    let later = folder.path().join("later");
    let listener = UnixListener::bind(&later).unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let answer = r#"{"simulated":false,"host":{"ttmem":"99.0"},"findings":[{"kind":"of tomorrow"}]}"#;
            let _ = stream.read(&mut [0; 100]).and_then(|_| writeln!(stream, "{answer}"));
        }
    });
    let found = &check(&later, &missing).one("daemon", "warning").1.clone();
    assert!(found.contains("with version 99.0; this is ttmem 0."), "{found}");
    let report = check(&missing, &file);
    assert!(report.one("old clients", "warning").1.contains("is not a socket"));

    // A daemon that hangs is waited for a limited time.
    server.signal(Signal::STOP);
    let report = check(&server.query, &server.legacy);
    assert!(report.one("daemon", "broken").1.contains("does not answer within 5 s"), "{}", report.page);
    server.signal(Signal::CONT);

    // A daemon of root reads the files of all users.
    let secret = server.segments.path().join("tt_device_5_memory");
    fs::write(&secret, "").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let (_keep, program) = copy_for_all();
    let (query, legacy) = (server.query.to_str().unwrap(), server.legacy.to_str().unwrap());
    let args = ["--shm-dir", shm, "--query-socket", query, "--legacy-socket", legacy];
    let report = run(|more| command(&AS_OTHER_USER, &program, &[&args[..], more].concat()));
    assert!(report.named("permissions").iter().all(|it| it.0 == "note"), "{}", report.page);
    assert!(
        report.named("permissions").iter().any(|it| it.1.ends_with("the daemon reads them")),
        "{}",
        report.page
    );
}
