//! A sysfs file that holds one value. Its descriptor is kept: reading again costs a tenth of opening again.

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Longest plausible value.
const MAX_BYTES: usize = 256;

/// The reason where this driver or this board has no such file, which is not a problem.
pub const NOT_SHOWN: &str = "the driver does not show it";
/// The reason while a chip is being reset, which passes.
pub const RESETTING: &str = "the device is being reset";

/// Why there is no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Absence {
    /// There is no such file: this driver or this board has none.
    NotShown,
    /// The chip is being reset.
    Resetting,
    /// The chip is gone.
    Gone,
    /// Any other reason, as text.
    Because(String),
}

impl Absence {
    pub(crate) fn because(text: impl Into<String>) -> Self {
        Self::Because(text.into())
    }

    pub(crate) fn text(&self) -> String {
        match self {
            Self::NotShown => NOT_SHOWN.to_owned(),
            Self::Resetting => RESETTING.to_owned(),
            Self::Gone => "the device was removed".to_owned(),
            Self::Because(why) => why.clone(),
        }
    }
}

impl From<std::io::Error> for Absence {
    fn from(e: std::io::Error) -> Self {
        match Errno::from_io_error(&e) {
            Some(Errno::NOENT | Errno::NOTDIR) => Self::NotShown,
            Some(Errno::NODATA) => Self::Resetting,
            Some(Errno::NODEV | Errno::NXIO) => Self::Gone,
            Some(Errno::ACCESS | Errno::PERM) => Self::because("it may not be read by this user"),
            Some(Errno::ISDIR) => Self::because("it is a folder, not a file"),
            _ => Self::Because(format!("it cannot be read: {e}")),
        }
    }
}

/// A file and, once it has been opened, its descriptor.
#[derive(Debug)]
pub(crate) struct Attribute {
    folder: Folder,
    name: String,
    file: Option<File>,
    /// Whether it will be read again. Descriptors are not kept needlessly: the kernel takes milliseconds to grow their
    /// table.
    keep_open: bool,
}

/// A folder of attributes, opened once: its path is long and leads through links.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    open: Option<Arc<OwnedFd>>,
}

impl Folder {
    pub(crate) fn new(path: PathBuf) -> Self {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = rustix::fs::open(&path, flags, Mode::empty()).ok().map(Arc::new);
        Self { path, open }
    }

    /// Reads a file of this folder once.
    pub(crate) fn read(&self, name: &str) -> Result<String, Absence> {
        Attribute::new(self, name, false).read()
    }

    fn open(&self, name: &str) -> std::io::Result<File> {
        match &self.open {
            Some(folder) => {
                let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
                Ok(rustix::fs::openat(folder, name, flags, Mode::empty())?.into())
            }
            None => File::open(self.path.join(name)),
        }
    }
}

impl Attribute {
    pub(crate) fn new(folder: &Folder, name: &str, keep_open: bool) -> Self {
        Self { folder: folder.clone(), name: name.to_owned(), file: None, keep_open }
    }

    /// The current value, without the trailing newline.
    pub(crate) fn read(&mut self) -> Result<String, Absence> {
        let kept = self.file.is_some();
        let read = self.read_once();
        if read.is_err() || !self.keep_open {
            self.file = None;
        }
        match read {
            // A chip that was reset or plugged in again has new files under the old names.
            Err(Absence::Gone) if kept => {
                self.folder = Folder::new(self.folder.path.clone());
                self.read_once()
            }
            read => read,
        }
    }

    fn read_once(&mut self) -> Result<String, Absence> {
        let file = match &self.file {
            Some(file) => file,
            None => self.file.insert(self.folder.open(&self.name)?),
        };
        let mut bytes = [0; MAX_BYTES + 1];
        let mut len = 0;
        loop {
            match file.read_at(&mut bytes[len..], len as u64) {
                Ok(0) => break,
                Ok(more) => len += more,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
            // sysfs returns a value in one read; only files that are not sysfs's need another.
            if len > MAX_BYTES || bytes[..len].ends_with(b"\n") {
                break;
            }
        }
        if len > MAX_BYTES {
            return Err(Absence::because("it is longer than any value"));
        }
        let text = std::str::from_utf8(&bytes[..len]).ok().map(str::trim_end);
        match text.filter(|text| text.chars().all(|c| !c.is_control())) {
            Some("") => Err(Absence::because("it is empty")),
            Some(text) => Ok(text.to_owned()),
            None => Err(Absence::because("it is no text")),
        }
    }
}

/// Reads a file once, by its path.
pub(crate) fn read(path: &Path) -> Result<String, Absence> {
    let folder = Folder { path: PathBuf::new(), open: None };
    folder.read(path.to_str().ok_or(Absence::NotShown)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn any_file_gives_a_value_or_a_reason() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("good"), "45406\n").unwrap();
        fs::write(at("empty"), "").unwrap();
        fs::write(at("binary"), [0xff, 0xfe, 0, 1]).unwrap();
        fs::write(at("controls"), "1\x1b[2J").unwrap();
        fs::write(at("huge"), vec![b'7'; 1 << 20]).unwrap();
        fs::create_dir(at("folder")).unwrap();
        let reason = |name: &str| read(&at(name)).unwrap_err().text();
        assert_eq!(read(&at("good")).unwrap(), "45406");
        assert_eq!(reason("empty"), "it is empty");
        assert_eq!(reason("binary"), "it is no text");
        assert_eq!(reason("controls"), "it is no text");
        assert_eq!(reason("huge"), "it is longer than any value");
        assert_eq!(reason("folder"), "it is a folder, not a file");
        assert_eq!(read(&at("missing")), Err(Absence::NotShown));
        assert_eq!(read(&at("good/below")), Err(Absence::NotShown));
    }

    #[test]
    fn kept_descriptor_reads_later_writes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("value");
        fs::write(&path, "1\n").unwrap();
        let mut attribute = Attribute::new(&Folder::new(folder.path().to_owned()), "value", true);
        assert_eq!(attribute.read().unwrap(), "1");
        fs::write(&path, "2\n").unwrap();
        assert_eq!(attribute.read().unwrap(), "2");
    }
}
