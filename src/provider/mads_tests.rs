use std::collections::VecDeque;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::*;

const ENDPOINT: *const abi::Endpoint = ptr::without_provenance(0x1000);
const EP: EpId = EpId(7);
const PROVIDER: ProviderId = ProviderId(2);

fn core() -> Core {
    let core = Core::new();
    core.add_endpoint(ENDPOINT, EP, PROVIDER);
    core
}

/// Counts its calls where the MAD's context points to.
unsafe extern "C" fn count(mad: *mut abi::SaMad) {
    // SAFETY: it is called with a live MAD, and its context is a counter that outlives the test's MADs.
    unsafe { &*(*mad).context.cast::<AtomicUsize>() }.fetch_add(1, Ordering::Relaxed);
}

fn alloc(core: &Core, calls: &AtomicUsize) -> *mut abi::SaMad {
    let context = ptr::from_ref(calls).cast_mut().cast();
    core.alloc_mad(ENDPOINT, context, Some(count)).unwrap().as_ptr()
}

/// The tokens of the MADs that were sent.
fn sent(core: &Core) -> Vec<MadToken> {
    let mut out = VecDeque::new();
    core.take_notices(&mut out);
    let token = |notice: Notice| match notice {
        Notice::Mad { token, ep: EP, .. } => token,
        other => panic!("{other:?}"),
    };
    out.into_iter().map(token).collect()
}

#[test]
fn what_is_handed_out_is_aligned_zeroed_and_filled_in() {
    let (core, calls) = (core(), AtomicUsize::new(0));
    let mad = alloc(&core, &calls);
    assert!(mad.addr().is_multiple_of(8));
    // SAFETY: the structure is live and as long as its type.
    let before = unsafe { mad.cast::<[u8; size_of::<abi::SaMad>()]>().read() };
    assert!(before[8..].iter().all(|&b| b == 0));
    // SAFETY: the structure is live.
    unsafe { (*mad).mad = [0xab; 256] };
    core.send_mad(mad).unwrap();
    // SAFETY: the structure is live.
    let (umad, bytes) = unsafe { (&(*mad).umad, (*mad).mad) };
    assert_eq!((umad.status, umad.length), (0, 64 + 256));
    assert_eq!((u32::from_be(umad.addr.qpn), u32::from_be(umad.addr.qkey)), (1, 0x8001_0000));
    assert_eq!(bytes, [0xab; 256], "the question is the plug-in's");
    core.free_mad(mad).unwrap();
}

#[test]
fn ends_are_told_once() {
    let (core, calls) = (core(), AtomicUsize::new(0));
    let mad = alloc(&core, &calls);
    // SAFETY: the structure is live throughout.
    let end = || unsafe { ((*mad).umad.status, (*mad).mad[0]) };
    let results = [
        (Ok(Box::new(sa::SaMad([9; 256]))), (0, 9)),
        (Err(libc::ETIMEDOUT), (110, 9)),
        (Err(0), (5, 9)),
        (Err(-1), (5, 9)),
    ];
    for (n, (result, want)) in results.into_iter().enumerate() {
        core.send_mad(mad).unwrap();
        assert_eq!(core.send_mad(mad), Err(Refusal::Sent));
        let [token] = sent(&core)[..] else { panic!("sent once") };
        assert_eq!(core.mad_provider(token), Some(PROVIDER));
        let delivery = core.mad_done(token, result).unwrap();
        assert_eq!(end(), want);
        assert!(core.mad_done(token, Err(1)).is_none(), "it has ended");
        assert_eq!(core.send_mad(mad), Err(Refusal::Sent), "its handler was not called yet");
        assert_eq!((core.mad_provider(token), calls.load(Ordering::Relaxed)), (None, n));
        delivery.deliver();
        assert_eq!(calls.load(Ordering::Relaxed), n + 1);
    }
    core.free_mad(mad).unwrap();
    assert_eq!(core.free_mad(mad), Err(Refusal::NoMad));
    assert_eq!(core.send_mad(mad), Err(Refusal::NoMad));
}

#[test]
fn what_is_freed_is_not_touched() {
    let (core, calls) = (core(), AtomicUsize::new(0));
    let on_its_way = alloc(&core, &calls);
    core.send_mad(on_its_way).unwrap();
    core.free_mad(on_its_way).unwrap();
    let [token] = sent(&core)[..] else { panic!("sent once") };
    assert_eq!(core.mad_provider(token), None);
    assert!(core.mad_done(token, Err(1)).is_none());

    let ended = alloc(&core, &calls);
    core.send_mad(ended).unwrap();
    let [token] = sent(&core)[..] else { panic!("sent once") };
    let delivery = core.mad_done(token, Err(1)).unwrap();
    core.free_mad(ended).unwrap();
    // Another one may have got its place.
    let others: Vec<_> = (0..8).map(|_| alloc(&core, &calls)).collect();
    delivery.deliver();
    assert_eq!(calls.load(Ordering::Relaxed), 0);
    others.into_iter().for_each(|mad| core.free_mad(mad).unwrap());
}

#[test]
fn strange_pointers_are_not_followed() {
    let core = core();
    for address in [0, 1, 8, 0xffff_ffff_ffff_fff8] {
        let mad = ptr::without_provenance(address);
        assert_eq!(core.send_mad(mad), Err(Refusal::NoMad));
        assert_eq!(core.free_mad(mad), Err(Refusal::NoMad));
        let alloc = core.alloc_mad(ptr::without_provenance(address), ptr::null_mut(), Some(count));
        assert_eq!(alloc, Err(Refusal::NoEndpoint));
    }
    assert_eq!(core.alloc_mad(ENDPOINT, ptr::null_mut(), None), Err(Refusal::NoHandler));
}

#[test]
fn an_endpoint_that_is_another_one_now_is_not_asked_for() {
    let (core, calls) = (core(), AtomicUsize::new(0));
    let mad = alloc(&core, &calls);
    core.remove_endpoint(ENDPOINT);
    assert_eq!(core.send_mad(mad), Err(Refusal::NoEndpoint));
    core.add_endpoint(ENDPOINT, EpId(8), PROVIDER);
    assert_eq!(core.send_mad(mad), Err(Refusal::NoEndpoint));
    core.add_endpoint(ENDPOINT, EP, PROVIDER);
    assert_eq!(core.send_mad(mad), Ok(()));
    core.free_mad(mad).unwrap();
}

#[test]
fn mads_are_bounded() {
    let (core, calls) = (core(), AtomicUsize::new(0));
    let mads: Vec<_> = (0..MAX_MADS).map(|_| alloc(&core, &calls)).collect();
    assert_eq!(core.alloc_mad(ENDPOINT, ptr::null_mut(), Some(count)), Err(Refusal::NoRoom));
    core.free_mad(mads[0]).unwrap();
    let again = alloc(&core, &calls);
    mads.into_iter().skip(1).chain([again]).for_each(|mad| core.free_mad(mad).unwrap());
    assert!(lock(&core.mads.0).live.is_empty());
}

#[test]
fn many_threads_send_while_ends_are_told() {
    const THREADS: usize = 8;
    const EACH: usize = 2_000;
    let (core, calls) = (core(), AtomicUsize::new(0));
    let start = Instant::now();
    let freed: usize = thread::scope(|threads| {
        let senders: Vec<_> = (0..THREADS)
            .map(|_| {
                let (core, calls) = (&core, &calls);
                threads.spawn(move || {
                    let mut freed = 0;
                    for n in 0..EACH {
                        let mad = alloc(core, calls);
                        core.send_mad(mad).unwrap();
                        if n % 3 == 0 {
                            core.free_mad(mad).unwrap();
                            freed += 1;
                        }
                    }
                    freed
                })
            })
            .collect();
        let (mut ended, mut gone) = (0, 0);
        while ended + gone < THREADS * EACH {
            assert!(start.elapsed() < Duration::from_secs(60), "{ended} ended and {gone} gone");
            for token in sent(&core) {
                match core.mad_done(token, Err(1)) {
                    // Not delivered: the one that frees it does so from another thread, as no plug-in may.
                    Some(_) => ended += 1,
                    None => gone += 1,
                }
            }
            thread::yield_now();
        }
        senders.into_iter().map(|t| t.join().unwrap()).sum()
    });
    let table = lock(&core.mads.0);
    assert_eq!((table.live.len(), table.sent.len()), (THREADS * EACH - freed, 0));
    drop(table);
    let left: Vec<_> = lock(&core.mads.0).live.values().map(|entry| entry.mad).collect();
    left.into_iter().for_each(|mad| core.free_mad(mad.as_ptr()).unwrap());
}
