//! A client of the old protocol.

use crate::Server;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use ttmem_wire::legacy::{MAX_SIZE, Message, Type, Vintage};

/// A message with the fields that clients set.
pub fn message(kind: Type, device: i32, buffer_type: u8, id: u64, size: u64) -> Message {
    Message {
        device_id: device,
        size,
        buffer_type,
        process_id: std::process::id() as i32,
        buffer_id: id,
        timestamp: 1_700_000_000_000_000_000,
        ..Message::new(kind)
    }
}

/// A connection to a server's legacy socket.
#[derive(Debug)]
pub struct Client {
    /// The socket, for tests that misuse it.
    pub stream: UnixStream,
    vintage: Vintage,
}

impl Client {
    /// Connects to a server.
    pub fn connect(server: &Server, vintage: Vintage) -> Self {
        Self::connect_to(&server.legacy, vintage)
    }

    /// Connects to the socket at a path.
    pub fn connect_to(path: &std::path::Path, vintage: Vintage) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        // A server that hangs fails the test instead of blocking it.
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
        Self { stream, vintage }
    }

    /// Sends one message in one write.
    pub fn send(&mut self, message: Message) {
        let mut buffer = [0; MAX_SIZE];
        self.stream.write_all(message.encode(self.vintage, &mut buffer)).unwrap();
    }

    /// Sends ALLOC.
    pub fn alloc(&mut self, device: i32, buffer_type: u8, id: u64, size: u64) {
        self.send(message(Type::Alloc, device, buffer_type, id, size));
    }

    /// Sends FREE.
    pub fn free(&mut self, device: i32, id: u64) {
        self.send(message(Type::Free, device, 0, id, 0));
    }

    /// Sends `CB_ALLOC`.
    pub fn cb_alloc(&mut self, device: i32, id: u64, size: u64) {
        self.send(message(Type::CbAlloc, device, 0, id, size));
    }

    /// Sends `CB_FREE`.
    pub fn cb_free(&mut self, device: i32, id: u64, size: u64) {
        self.send(message(Type::CbFree, device, 0, id, size));
    }

    /// Sends `KERNEL_LOAD`.
    pub fn kernel_load(&mut self, device: i32, class: u8, id: u64, size: u64) {
        self.send(message(Type::KernelLoad, device, class, id, size));
    }

    /// Sends `KERNEL_UNLOAD`.
    pub fn kernel_unload(&mut self, device: i32, id: u64, size: u64) {
        self.send(message(Type::KernelUnload, device, 0, id, size));
    }

    /// Sends a query and reads its answer, in the size of the query. The server has then processed everything that was sent
    /// before on this connection.
    pub fn ask(&mut self, question: Message) -> Message {
        self.send(question);
        self.answer()
    }

    /// Reads one answer.
    pub fn answer(&mut self) -> Message {
        let mut bytes = vec![0; self.vintage.size()];
        self.stream.read_exact(&mut bytes).unwrap();
        Message::decode(self.vintage, &bytes).unwrap()
    }

    /// Sends QUERY and reads the answer.
    pub fn query(&mut self, device: i32) -> Message {
        self.ask(message(Type::Query, device, 0, 0, 0))
    }

    /// Sends `DEVICE_INFO_QUERY` and reads the answer.
    pub fn device_info(&mut self, device: i32) -> Message {
        self.ask(message(Type::DeviceInfoQuery, device, 0, 0, 0))
    }

    /// Waits until the server has processed everything that was sent so far.
    pub fn sync(&mut self) {
        self.query(0);
    }

    /// Whether the server closed the connection.
    pub fn is_closed(&mut self) -> bool {
        matches!(self.stream.read(&mut [0]), Ok(0) | Err(_))
    }
}
