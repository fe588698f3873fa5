//! Finds the container of a process from the paths of its control groups.

/// Parses the container and the pod from the content of `/proc/PID/cgroup`. Engines put the container's id, 64 digits,
/// into the last part of their path, with a prefix and a suffix; Kubernetes puts the pod's id above it.
pub(crate) fn parse_cgroup(cgroup: &str) -> (Option<String>, Option<String>) {
    let paths = cgroup.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let (mut container, mut pod) = (None, None);
    for part in paths.flat_map(|path| path.split('/')) {
        let part = part.trim_end_matches(".scope").trim_end_matches(".slice");
        if let Some(id) = find_id(part) {
            container = Some(id.to_owned());
        } else if let Some(name) = part.strip_prefix("lxc.payload.").or_else(|| part.strip_prefix("machine-"))
        {
            container = Some(name.to_owned()).filter(|name| !name.is_empty() && name.len() <= 128);
        } else if let Some(id) = find_pod(part) {
            pod = Some(id);
        }
    }
    (container, pod)
}

fn is_id(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Finds a container's id in `docker-<id>`, `cri-containerd-<id>`, `crio-<id>`, `libpod-<id>`, or on its own.
fn find_id(part: &str) -> Option<&str> {
    let last = part.rsplit('-').next()?;
    is_id(last).then_some(last)
}

/// Finds a pod's id in `pod<uid>` or `kubepods-burstable-pod<uid>`, where systemd has underscores in place of dashes.
fn find_pod(part: &str) -> Option<String> {
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
    fn paths_of_all_engines_are_parsed() {
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
            let (container, pod) = parse_cgroup(&path);
            assert_eq!((container.as_deref(), pod.as_deref()), expected, "{path}");
        }
    }
}
