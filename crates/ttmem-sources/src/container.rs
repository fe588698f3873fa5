//! Which container a process runs in, from the path of its control group.

/// The container and the pod that a process's list of control groups names. Engines put the container's id, 64 digits,
/// into the last part of the path that is theirs, with their own prefix and suffix; Kubernetes puts the pod's id above it.
pub(crate) fn of(cgroup: &str) -> (Option<String>, Option<String>) {
    let paths = cgroup.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let mut found = (None, None);
    for part in paths.flat_map(|path| path.split('/')) {
        let part = part.trim_end_matches(".scope").trim_end_matches(".slice");
        if let Some(id) = id_in(part) {
            found.0 = Some(id.to_owned());
        } else if let Some(name) = part.strip_prefix("lxc.payload.").or_else(|| part.strip_prefix("machine-"))
        {
            found.0 = Some(name.to_owned()).filter(|name| !name.is_empty() && name.len() <= 128);
        } else if let Some(pod) = pod_in(part) {
            found.1 = Some(pod);
        }
    }
    found
}

fn is_id(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// `docker-<id>`, `cri-containerd-<id>`, `crio-<id>`, `libpod-<id>`, or the id itself.
fn id_in(part: &str) -> Option<&str> {
    let last = part.rsplit('-').next()?;
    is_id(last).then_some(last)
}

/// `pod<uid>` or `kubepods-burstable-pod<uid>`; systemd has underscores in place of the dashes.
fn pod_in(part: &str) -> Option<String> {
    let (before, uid) = part.rsplit_once("pod")?;
    let whole = before.is_empty() || (before.starts_with("kube") && before.ends_with('-'));
    let uid = uid.replace('_', "-");
    let plausible = uid.len() == 36 && uid.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    (whole && plausible).then_some(uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_told_by_their_paths() {
        let id = "3f".repeat(32);
        let pod = "0b8d4a5e-7c1d-4a43-9a52-6a0f6a1c2d3e";
        let under = pod.replace('-', "_");
        for (path, expected) in [
            (format!("0::/system.slice/docker-{id}.scope"), (Some(&*id), None)),
            (format!("0::/docker/{id}"), (Some(&*id), None)),
            (format!("12:devices:/docker/{id}\n0::/docker/{id}"), (Some(&*id), None)),
            (format!("0::/machine.slice/libpod-{id}.scope/container"), (Some(&*id), None)),
            (
                format!(
                    "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{under}.slice/cri-containerd-{id}.scope"
                ),
                (Some(&*id), Some(pod)),
            ),
            (format!("0::/kubepods/besteffort/pod{pod}/{id}"), (Some(&*id), Some(pod))),
            ("0::/lxc.payload.web/init.scope".to_owned(), (Some("web"), None)),
            ("0::/user.slice/user-1000.slice/session-3.scope".to_owned(), (None, None)),
            ("0::/".to_owned(), (None, None)),
            (String::new(), (None, None)),
            ("garbage".to_owned(), (None, None)),
        ] {
            let (container, pod) = of(&path);
            assert_eq!((container.as_deref(), pod.as_deref()), expected, "{path}");
        }
    }
}
