use super::*;
use crate::legacy::Type;
use proptest::prelude::*;

/// What a stream holds, by the simplest reading of it: message after message of a size known beforehand.
fn naive(messages: &[Message], vintage: Vintage) -> Vec<Frame> {
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

/// A sink that takes everything.
fn into(frames: &mut Vec<Frame>) -> impl FnMut(Frame) -> ControlFlow<()> {
    |frame| {
        frames.push(frame);
        ControlFlow::Continue(())
    }
}

/// A sink that takes nothing.
fn none(_: Frame) -> ControlFlow<()> {
    panic!("too early")
}

/// Feeds `bytes` cut at `cuts`, then ends the stream.
fn framed(bytes: &[u8], cuts: &[usize]) -> Result<Vec<Frame>, FrameError> {
    let (mut framer, mut frames, mut from) = (Framer::default(), Vec::new(), 0);
    for &to in cuts.iter().chain([&bytes.len()]) {
        framer.feed(&bytes[from..to], into(&mut frames))?;
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
fn every_vintage_every_type_every_split_point() {
    for vintage in Vintage::ALL {
        for first in 1..=12 {
            let messages = [message(first, 3), message(13 - first, 4), message(1, 5)];
            let (bytes, expected) = (bytes_of(&messages, vintage), naive(&messages, vintage));
            for cut in 0..=bytes.len() {
                assert_eq!(
                    framed(&bytes, &[cut]).as_ref(),
                    Ok(&expected),
                    "{vintage:?} type {first} cut {cut}"
                );
            }
            let every: Vec<usize> = (0..bytes.len()).collect();
            assert_eq!(framed(&bytes, &every).as_ref(), Ok(&expected), "{vintage:?} byte by byte");
        }
    }
}

#[test]
fn a_single_message_of_every_vintage_is_told_by_the_end() {
    for vintage in Vintage::ALL {
        for kind in 1..=12 {
            let messages = [message(kind, 7)];
            let bytes = bytes_of(&messages, vintage);
            for cut in 0..=bytes.len() {
                assert_eq!(framed(&bytes, &[cut]), Ok(naive(&messages, vintage)), "{vintage:?} {kind} {cut}");
            }
        }
    }
}

#[test]
fn an_event_is_handed_out_with_its_head() {
    for vintage in Vintage::ALL {
        let messages = [message(1, 9)];
        let (mut framer, mut frames) = (Framer::default(), Vec::new());
        framer.feed(&bytes_of(&messages, vintage)[..72], into(&mut frames)).unwrap();
        assert_eq!(frames, naive(&messages, vintage));
        assert!(!framer.waits_for_pause(), "an event needs no clock");
    }
}

#[test]
fn a_pause_settles_a_first_question_and_the_stream_goes_on() {
    for vintage in Vintage::ALL {
        let (mut framer, mut frames) = (Framer::default(), Vec::new());
        let messages = [message(3, 1), message(6, 2), message(8, 3)];
        framer.feed(&bytes_of(&messages[..1], vintage), into(&mut frames)).unwrap();
        if vintage == Vintage::V144 {
            assert_eq!(frames.len(), 1, "144 zero-filled bytes can be nothing else");
        } else {
            assert!(framer.waits_for_pause());
            frames.extend(framer.pause());
        }
        framer.feed(&bytes_of(&messages[1..], vintage), into(&mut frames)).unwrap();
        assert_eq!(frames, naive(&messages, vintage));
    }
}

#[test]
fn a_tail_after_the_pause_is_refused_not_misread() {
    let mut framer = Framer::default();
    let bytes = bytes_of(&[message(3, 1)], Vintage::V144);
    framer.feed(&bytes[..72], none).unwrap();
    assert!(matches!(framer.pause(), Some(Frame::Question(_, Vintage::V72))));
    let late = framer.feed(&bytes[72..], none);
    assert_eq!(late, Err(FrameError::LateTail { offset: 72 }));
}

#[test]
fn a_newline_alone_is_a_person_and_with_zeros_a_kernel_load() {
    let mut framer = Framer::default();
    framer.feed(b"\n", none).unwrap();
    assert!(framer.waits_for_pause());
    assert_eq!(framer.pause(), Some(Frame::Newline));

    let mut framer = Framer::default();
    framer.feed(b"\n", none).unwrap();
    assert_eq!(framer.end(), Ok(Some(Frame::Newline)));

    let load = [message(Type::KernelLoad as u8, 2)];
    assert_eq!(framed(&bytes_of(&load, Vintage::V144), &[1]), Ok(naive(&load, Vintage::V144)));
    assert_eq!(framed(b"\n\n", &[]), Err(FrameError::Half { offset: 0, left: 2 }));
}

#[test]
fn junk_is_refused_by_its_first_four_bytes() {
    for junk in [&b"\0\0\0\0"[..], b"\x0d\0\0\0", b"\x01\x01\0\0", b"QUERY_ALL\n", b"GET / HTTP/1.1\r\n"] {
        let found = u32::from_le_bytes(junk[..4].try_into().unwrap());
        assert_eq!(framed(junk, &[]), Err(FrameError::NotAMessage { offset: 0, found }));
    }
    let mut bytes = bytes_of(&[message(1, 1), message(2, 2)], Vintage::V112);
    bytes.extend([0xff; 4]);
    let broken = framed(&bytes, &[]);
    assert_eq!(broken, Err(FrameError::NotAMessage { offset: 224, found: u32::MAX }));
}

#[test]
fn a_tail_that_is_not_zero_is_no_known_message() {
    let mut bytes = bytes_of(&[message(1, 1)], Vintage::V144);
    bytes[100] = 1;
    assert_eq!(framed(&bytes, &[]), Err(FrameError::UnknownSize { offset: 100 }));
}

#[test]
fn what_follows_a_whole_message_is_judged_by_itself() {
    let question = [message(3, 1)];
    let mut bytes = bytes_of(&question, Vintage::V144);
    bytes.extend([0, 1, 0, 0]);
    for cut in 0..bytes.len() {
        let (mut framer, mut frames) = (Framer::default(), Vec::new());
        let (one, two) = bytes.split_at(cut);
        let end = framer.feed(one, into(&mut frames)).and_then(|_| framer.feed(two, into(&mut frames)));
        assert_eq!(end, Err(FrameError::NotAMessage { offset: 144, found: 256 }), "cut {cut}");
        assert_eq!(frames, naive(&question, Vintage::V144));
    }
}

#[test]
fn half_a_message_at_the_end_is_reported() {
    let bytes = bytes_of(&[message(1, 1), message(1, 2)], Vintage::V128);
    assert_eq!(framed(&bytes[..200], &[]), Err(FrameError::Half { offset: 128, left: 72 }));
    assert_eq!(framed(&bytes[..71], &[]), Err(FrameError::Half { offset: 0, left: 71 }));
    // Of a single event no more than the head is needed, but 100 bytes are no message.
    assert_eq!(framed(&bytes[..100], &[]), Err(FrameError::Half { offset: 0, left: 100 }));
    assert_eq!(framed(&[], &[]), Ok(vec![]));
}

/// Feeds `bytes` to a sink that breaks at every message, going on with the rest each time.
fn framed_one_by_one(bytes: &[u8], cut: usize) -> Result<Vec<Frame>, FrameError> {
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
            assert!(frames.len() <= before + 1, "it went on after the break");
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
    fn a_sink_may_take_one_message_at_a_time(
        vintage in prop::sample::select(&Vintage::ALL[..]),
        kinds in prop::collection::vec((1u8..=12, any::<u64>()), 1..12),
        cut in 0usize..2000,
    ) {
        let messages: Vec<Message> = kinds.iter().map(|&(kind, seed)| message(kind, seed)).collect();
        let bytes = bytes_of(&messages, vintage);
        let cut = cut.min(bytes.len());
        prop_assert_eq!(framed_one_by_one(&bytes, cut), Ok(naive(&messages, vintage)));
    }

    #[test]
    fn any_cut_of_any_stream_gives_the_same_messages(
        vintage in prop::sample::select(&Vintage::ALL[..]),
        kinds in prop::collection::vec((1u8..=12, any::<u64>()), 1..40),
        cuts in prop::collection::vec(0usize..6000, 0..60),
    ) {
        let messages: Vec<Message> = kinds.iter().map(|&(kind, seed)| message(kind, seed)).collect();
        let bytes = bytes_of(&messages, vintage);
        let mut cuts: Vec<usize> = cuts.into_iter().filter(|&c| c < bytes.len()).collect();
        cuts.sort_unstable();
        prop_assert_eq!(framed(&bytes, &cuts), Ok(naive(&messages, vintage)));
    }

    #[test]
    fn any_bytes_cut_anyhow_end_the_same_way(
        bytes in prop::collection::vec(prop_oneof![3 => Just(0u8), 2 => 1u8..=12, 1 => any::<u8>()], 0..600),
        cuts in prop::collection::vec(0usize..600, 0..20),
    ) {
        let mut cuts: Vec<usize> = cuts.into_iter().filter(|&c| c < bytes.len()).collect();
        cuts.sort_unstable();
        prop_assert_eq!(framed(&bytes, &cuts), framed(&bytes, &[]));
    }
}
