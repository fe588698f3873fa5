//! Another library written in Rust, unrelated to ttmem.

/// Uses much of Rust's standard library: it allocates, panics, unwinds, and starts a thread.
#[unsafe(no_mangle)]
pub extern "C" fn other_answer() -> i32 {
    std::panic::set_hook(Box::new(|_| {}));
    let caught = std::panic::catch_unwind(|| Vec::<i32>::new()[1]).is_err();
    let thread = std::thread::spawn(|| (1..=6).product::<i32>() / 18);
    thread.join().unwrap_or(0) + if caught { 2 } else { 0 }
}
