use super::*;
use crate::legacy::Type;
use proptest::prelude::*;

/// Returns the frames of messages, without deriving their size.
fn expected_frames(messages: &[Message], vintage: Vintage) -> Vec<Frame> {
    messages
        .iter()
        .map(|&m| {
            if Type::from_byte(m.kind).unwrap().wants_answer() {
                Frame::Question(m, vintage)
            } else {
                Frame::Event(m)
            }
        })
        .collect()
}

fn bytes_of(messages: &[Message], vintage: Vintage) -> Vec<u8> {
    let mut buffer = [0; MAX_SIZE];
    messages.iter().flat_map(|m| m.encode(vintage, &mut buffer).to_vec()).collect()
}

/// Returns a sink that collects every frame.
fn collect(frames: &mut Vec<Frame>) -> impl FnMut(Frame) -> ControlFlow<()> {
    |frame| {
        frames.push(frame);
        ControlFlow::Continue(())
    }
}

/// A sink that expects no frame.
fn expect_none(_: Frame) -> ControlFlow<()> {
    panic!("too early")
}

/// Feeds `bytes` divided at `cuts`, then ends the stream.
fn frame(bytes: &[u8], cuts: &[usize]) -> Result<Vec<Frame>, FrameError> {
    let (mut framer, mut frames, mut from) = (Framer::default(), Vec::new(), 0);
    for &to in cuts.iter().chain([&bytes.len()]) {
        framer.feed(&bytes[from..to], collect(&mut frames))?;
        from = to;
    }
    frames.extend(framer.end()?);
    Ok(frames)
}

fn message(kind: u8, seed: u64) -> Message {
    Message {
        kind,
        device_id: (seed % 9) as i32 - 1,
        size: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        buffer_type: (seed % 5) as u8,
        process_id: seed as i32,
        buffer_id: seed << 20,
        timestamp: !seed,
        ..Message::default()
    }
}

#[test]
fn every_vintage_type_and_split_point_is_framed() {
    for vintage in Vintage::ALL {
        for first in 1..=12 {
            let messages = [message(first, 3), message(13 - first, 4), message(1, 5)];
            let (bytes, expected) = (bytes_of(&messages, vintage), expected_frames(&messages, vintage));
            for cut in 0..=bytes.len() {
                assert_eq!(
                    frame(&bytes, &[cut]).as_ref(),
                    Ok(&expected),
                    "{vintage:?} type {first} cut {cut}"
                );
            }
            let every: Vec<usize> = (0..bytes.len()).collect();
            assert_eq!(frame(&bytes, &every).as_ref(), Ok(&expected), "{vintage:?} byte by byte");
        }
    }
}

#[test]
fn end_of_stream_completes_a_single_message() {
    for vintage in Vintage::ALL {
        for kind in 1..=12 {
            let messages = [message(kind, 7)];
            let bytes = bytes_of(&messages, vintage);
            for cut in 0..=bytes.len() {
                assert_eq!(
                    frame(&bytes, &[cut]),
                    Ok(expected_frames(&messages, vintage)),
                    "{vintage:?} {kind} {cut}"
                );
            }
        }
    }
}

#[test]
fn event_is_delivered_with_its_head() {
    for vintage in Vintage::ALL {
        let messages = [message(1, 9)];
        let (mut framer, mut frames) = (Framer::default(), Vec::new());
        framer.feed(&bytes_of(&messages, vintage)[..72], collect(&mut frames)).unwrap();
        assert_eq!(frames, expected_frames(&messages, vintage));
        assert!(!framer.waits_for_pause(), "an event needs no pause");
    }
}

#[test]
fn pause_completes_a_first_question() {
    for vintage in Vintage::ALL {
        let (mut framer, mut frames) = (Framer::default(), Vec::new());
        let messages = [message(3, 1), message(6, 2), message(8, 3)];
        framer.feed(&bytes_of(&messages[..1], vintage), collect(&mut frames)).unwrap();
        if vintage == Vintage::V144 {
            assert_eq!(frames.len(), 1, "144 zero-filled bytes can be nothing else");
        } else {
            assert!(framer.waits_for_pause());
            frames.extend(framer.pause());
        }
        framer.feed(&bytes_of(&messages[1..], vintage), collect(&mut frames)).unwrap();
        assert_eq!(frames, expected_frames(&messages, vintage));
    }
}

#[test]
fn bytes_of_a_message_after_the_pause_are_refused() {
    let mut framer = Framer::default();
    let bytes = bytes_of(&[message(3, 1)], Vintage::V144);
    framer.feed(&bytes[..72], expect_none).unwrap();
    assert!(matches!(framer.pause(), Some(Frame::Question(_, Vintage::V72))));
    let late = framer.feed(&bytes[72..], expect_none);
    assert_eq!(late, Err(FrameError::LateTail { offset: 72 }));
}

#[test]
fn newline_is_a_dump_request_or_a_kernel_load() {
    let mut framer = Framer::default();
    framer.feed(b"\n", expect_none).unwrap();
    assert!(framer.waits_for_pause());
    assert_eq!(framer.pause(), Some(Frame::Newline));

    let mut framer = Framer::default();
    framer.feed(b"\n", expect_none).unwrap();
    assert_eq!(framer.end(), Ok(Some(Frame::Newline)));

    let load = [message(Type::KernelLoad as u8, 2)];
    assert_eq!(frame(&bytes_of(&load, Vintage::V144), &[1]), Ok(expected_frames(&load, Vintage::V144)));
    assert_eq!(frame(b"\n\n", &[]), Err(FrameError::Half { offset: 0, left: 2 }));
}

#[test]
fn invalid_start_is_refused() {
    for junk in [&b"\0\0\0\0"[..], b"\x0d\0\0\0", b"\x01\x01\0\0", b"QUERY_ALL\n", b"GET / HTTP/1.1\r\n"] {
        let found = u32::from_le_bytes(junk[..4].try_into().unwrap());
        assert_eq!(frame(junk, &[]), Err(FrameError::NotAMessage { offset: 0, found }));
    }
    let mut bytes = bytes_of(&[message(1, 1), message(2, 2)], Vintage::V112);
    bytes.extend([0xff; 4]);
    let broken = frame(&bytes, &[]);
    assert_eq!(broken, Err(FrameError::NotAMessage { offset: 224, found: u32::MAX }));
}

#[test]
fn nonzero_padding_is_refused() {
    let mut bytes = bytes_of(&[message(1, 1)], Vintage::V144);
    bytes[100] = 1;
    assert_eq!(frame(&bytes, &[]), Err(FrameError::UnknownSize { offset: 100 }));
}

#[test]
fn invalid_second_message_is_refused() {
    let question = [message(3, 1)];
    let mut bytes = bytes_of(&question, Vintage::V144);
    bytes.extend([0, 1, 0, 0]);
    for cut in 0..bytes.len() {
        let (mut framer, mut frames) = (Framer::default(), Vec::new());
        let (one, two) = bytes.split_at(cut);
        let end = framer.feed(one, collect(&mut frames)).and_then(|_| framer.feed(two, collect(&mut frames)));
        assert_eq!(end, Err(FrameError::NotAMessage { offset: 144, found: 256 }), "cut {cut}");
        assert_eq!(frames, expected_frames(&question, Vintage::V144));
    }
}

#[test]
fn incomplete_message_at_the_end_is_an_error() {
    let bytes = bytes_of(&[message(1, 1), message(1, 2)], Vintage::V128);
    assert_eq!(frame(&bytes[..200], &[]), Err(FrameError::Half { offset: 128, left: 72 }));
    assert_eq!(frame(&bytes[..71], &[]), Err(FrameError::Half { offset: 0, left: 71 }));
    // A single event is delivered with its head, but no message has 100 bytes.
    assert_eq!(frame(&bytes[..100], &[]), Err(FrameError::Half { offset: 0, left: 100 }));
    assert_eq!(frame(&[], &[]), Ok(vec![]));
}

/// Feeds `bytes` to a sink that breaks at every message, and continues with the rest each time.
fn frame_one_by_one(bytes: &[u8], cut: usize) -> Result<Vec<Frame>, FrameError> {
    let (mut framer, mut frames) = (Framer::default(), Vec::new());
    for piece in [&bytes[..cut], &bytes[cut..]] {
        let mut rest = piece;
        loop {
            let before = frames.len();
            let taken = framer.feed(rest, |frame| {
                frames.push(frame);
                ControlFlow::Break(())
            })?;
            rest = &rest[taken..];
            assert!(frames.len() <= before + 1, "frames were delivered after the break");
            if frames.len() == before {
                assert!(rest.is_empty());
                break;
            }
        }
    }
    frames.extend(framer.end()?);
    Ok(frames)
}

proptest! {
    #[test]
    fn sink_may_take_one_message_at_a_time(
        vintage in prop::sample::select(&Vintage::ALL[..]),
        kinds in prop::collection::vec((1u8..=12, any::<u64>()), 1..12),
        cut in 0usize..2000,
    ) {
        let messages: Vec<Message> = kinds.iter().map(|&(kind, seed)| message(kind, seed)).collect();
        let bytes = bytes_of(&messages, vintage);
        let cut = cut.min(bytes.len());
        prop_assert_eq!(frame_one_by_one(&bytes, cut), Ok(expected_frames(&messages, vintage)));
    }

    #[test]
    fn messages_do_not_depend_on_cuts(
        vintage in prop::sample::select(&Vintage::ALL[..]),
        kinds in prop::collection::vec((1u8..=12, any::<u64>()), 1..40),
        cuts in prop::collection::vec(0usize..6000, 0..60),
    ) {
        let messages: Vec<Message> = kinds.iter().map(|&(kind, seed)| message(kind, seed)).collect();
        let bytes = bytes_of(&messages, vintage);
        let mut cuts: Vec<usize> = cuts.into_iter().filter(|&c| c < bytes.len()).collect();
        cuts.sort_unstable();
        prop_assert_eq!(frame(&bytes, &cuts), Ok(expected_frames(&messages, vintage)));
    }

    #[test]
    fn result_of_any_bytes_does_not_depend_on_cuts(
        bytes in prop::collection::vec(prop_oneof![3 => Just(0u8), 2 => 1u8..=12, 1 => any::<u8>()], 0..600),
        cuts in prop::collection::vec(0usize..600, 0..20),
    ) {
        let mut cuts: Vec<usize> = cuts.into_iter().filter(|&c| c < bytes.len()).collect();
        cuts.sort_unstable();
        prop_assert_eq!(frame(&bytes, &cuts), frame(&bytes, &[]));
    }
}
