pub(crate) fn run(_numbers: &[&str]) -> anyhow::Result<()> { Ok(()) }
