//! Names in mangled symbols of C++, without understanding all of their grammar: templates with constraints are beyond most tools.

/// What the runtime's names of device operations end with.
const DEVICE_OPERATION: &str = "DeviceOperation";

/// The template through which operations are dispatched, and the mark that its argument follows.
const ADAPTER: &str = "MeshDeviceOperationAdapterI";

/// Bytes of the longest qualified name.
pub const MAX_NAME: usize = 1024;

/// Returns the device operation that a dispatching function is for: the argument of a template, or any name that says so.
pub fn device_operation(symbol: &str) -> Option<&str> {
    let mut found = None;
    if let Some((_, argument)) = symbol.split_once(ADAPTER) {
        let mut rest = argument.trim_start_matches(['N', 'K']);
        loop {
            // A part that was named before is abbreviated.
            if let Some(abbreviated) = rest.strip_prefix('S') {
                rest = abbreviated.trim_start_matches(|c: char| c.is_ascii_digit() || c.is_ascii_uppercase());
                rest = rest.strip_prefix('_').unwrap_or(rest);
            }
            let Some((name, after)) = split_name(rest) else { return found };
            (found, rest) = (Some(name), after);
        }
    }
    for_each_name(symbol, |name| {
        if name.ends_with(DEVICE_OPERATION) {
            found = Some(name);
        }
    });
    found
}

/// The name that a mangled text begins with, and what follows it.
fn split_name(text: &str) -> Option<(&str, &str)> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let length: usize = text[..digits].parse().ok()?;
    let name = text.get(digits..digits.checked_add(length)?)?;
    Some((name, &text[digits + length..]))
}

/// Calls `visit` with each name in a mangled symbol: digits that say how long it is, and so many characters. Templates and
/// constraints need no understanding for that.
fn for_each_name<'a>(symbol: &'a str, mut visit: impl FnMut(&'a str)) {
    let mut rest = symbol;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        rest = &rest[at..];
        let is_name = |name: &str| name.len() > 1 && !name.starts_with(|c: char| c.is_ascii_digit());
        match split_name(rest).filter(|(name, _)| is_name(name)) {
            Some((name, after)) => {
                visit(name);
                rest = after;
            }
            None => rest = rest.trim_start_matches(|c: char| c.is_ascii_digit()),
        }
    }
}

/// Returns the qualified name of a function: `app::Model::load`. A symbol that is not mangled is its own name.
pub fn qualified_name<'a>(symbol: &'a str, room: &'a mut [u8; MAX_NAME]) -> &'a str {
    let Some(mangled) = symbol.strip_prefix("_Z") else { return symbol };
    let (mut len, mut at) = (0, mangled.trim_start_matches(['N', 'K']));
    let is_nested = mangled.starts_with('N');
    while let Some((name, after)) = split_name(at) {
        let separator: &[u8] = if len > 0 { b"::" } else { b"" };
        for part in [separator, name.as_bytes()] {
            let Some(place) = room.get_mut(len..len + part.len()) else { break };
            place.copy_from_slice(part);
            len += part.len();
        }
        at = after;
        if !is_nested {
            break;
        }
    }
    if len == 0 { symbol } else { core::str::from_utf8(&room[..len]).unwrap_or(symbol) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAUNCH: &str = "_ZN4ttnn16device_operation6detail21enqueue_mesh_workloadITkNS0_26DeviceOperationWithMeshDeviceENS0_27MeshDeviceOperationAdapterINS_4prim21MatmulDeviceOperationEEEEEvRKNT_";

    #[test]
    fn qualified_names_of_functions_are_found() {
        for (symbol, name) in [
            ("main", "main"),
            ("_Z3runv", "run"),
            ("_ZN3app5Model4loadERKSs", "app::Model::load"),
            ("_ZNK3app5Model4sizeEv", "app::Model::size"),
            (LAUNCH, "ttnn::device_operation::detail::enqueue_mesh_workload"),
            ("_ZN9x", "_ZN9x"),
            ("_Z", "_Z"),
        ] {
            assert_eq!(qualified_name(symbol, &mut [0; MAX_NAME]), name);
        }
    }

    #[test]
    fn device_operations_are_found_in_constraints() {
        assert_eq!(device_operation(LAUNCH), Some("MatmulDeviceOperation"));
        assert_eq!(
            device_operation("_ZN4ttnn23BinaryNgDeviceOperation6launchEv"),
            Some("BinaryNgDeviceOperation")
        );
        assert_eq!(device_operation("_ZN3app3runEv"), None);
    }
}
