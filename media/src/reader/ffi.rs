//! The few ffmpeg calls without a safe form in `ffmpeg-next`, each with the reason why it is sound.
//! Nothing here decides anything.

#![expect(unsafe_code, reason = "FFI to libav*, kept in this one file")]

use std::ffi::{CStr, c_char, c_int};
use std::ptr;

use ff::ffi;
use ffmpeg_next as ff;

/// Width and height that the container declares; 0 when unknown.
pub(super) fn picture_size(stream: &ff::Stream<'_>) -> (u32, u32) {
    // SAFETY: a stream of an open input has parameters for as long as the input lives, which `stream` borrows.
    let (w, h) = unsafe {
        let parameters = (*stream.as_ptr()).codecpar;
        ((*parameters).width, (*parameters).height)
    };
    (w.try_into().unwrap_or(0), h.try_into().unwrap_or(0))
}

/// Tells the demuxer to drop a track's packets itself.
pub(super) fn discard(input: &mut ff::format::context::Input, index: usize) {
    if let Some(mut stream) = input.stream_mut(index) {
        // SAFETY: the stream belongs to the open input; `discard` is read by the demuxer at the next packet.
        unsafe { (*stream.as_mut_ptr()).discard = ffi::AVDiscard::AVDISCARD_ALL };
    }
}

/// Sets the sample rate that a decoder starts with.
pub(super) fn set_rate(context: &mut ff::codec::context::Context, rate_hz: c_int) {
    // SAFETY: the context is allocated and not open yet; the rate is a plain field read on opening.
    unsafe { (*context.as_mut_ptr()).sample_rate = rate_hz };
}

/// Whether the container wants a packet decoded but not shown.
pub(super) fn is_unseen(packet: &ff::Packet) -> bool {
    use ff::packet::Ref;
    // SAFETY: the packet is initialised for as long as it is borrowed; `flags` is a plain number.
    unsafe { (*packet.as_ptr()).flags & ffi::AV_PKT_FLAG_DISCARD != 0 }
}

/// A metadata value of the container; bytes that are no UTF-8 are replaced.
pub(super) fn metadata(input: &ff::format::context::Input, key: &CStr) -> Option<String> {
    // SAFETY: the dictionary (possibly null, which `av_dict_get` allows) lives as long as the input; key and
    // value are NUL-terminated.
    unsafe {
        let dictionary = (*input.as_ptr()).metadata;
        let entry = ffi::av_dict_get(dictionary, key.as_ptr(), ptr::null(), 0);
        (!entry.is_null()).then(|| lossy((*entry).value)).flatten()
    }
}

/// Byte position of the demuxer, to see whether it still moves.
pub(super) fn position(input: &ff::format::context::Input) -> i64 {
    // SAFETY: `pb` is null (RTSP) or the input's own open I/O context, whose position is a plain field.
    unsafe {
        let io = (*input.as_ptr()).pb;
        if io.is_null() { -1 } else { (*io).pos }
    }
}

/// Colour matrix (ISO 23091-2 number) of a picture and whether its luma uses the full range.
pub(super) fn colours(frame: &ff::frame::Video) -> (c_int, bool) {
    // SAFETY: the frame is allocated. The fields are C enums that a bitstream fills, so they are read as plain
    // numbers: an unknown value must not become a Rust enum.
    unsafe {
        let frame = frame.as_ptr();
        let space = (&raw const (*frame).colorspace).cast::<c_int>().read();
        let range = (&raw const (*frame).color_range).cast::<c_int>().read();
        (space, range == ffi::AVColorRange::AVCOL_RANGE_JPEG as c_int)
    }
}

/// Makes a scaler use a picture's own colour matrix and range; ignored by libswscale for pictures that are RGB.
pub(super) fn set_colours(scaler: &mut ff::software::scaling::Context, space: c_int, full: bool) {
    let scaler = unwrap_scaler(scaler);
    let (mut from, mut to) = (ptr::null_mut(), ptr::null_mut());
    let (mut full_in, mut full_out) = (0, 0);
    let (mut brightness, mut contrast, mut saturation) = (0, 0, 0);
    // SAFETY: `scaler` is initialised; all out-pointers are valid; the tables belong to the scaler or to
    // libswscale's static memory, and `sws_getCoefficients` answers with a default for unknown matrices.
    unsafe {
        let known = ffi::sws_getColorspaceDetails(
            scaler,
            &raw mut from,
            &raw mut full_in,
            &raw mut to,
            &raw mut full_out,
            &raw mut brightness,
            &raw mut contrast,
            &raw mut saturation,
        );
        if known >= 0 {
            let full_in = if full { 1 } else { full_in };
            ffi::sws_setColorspaceDetails(
                scaler,
                ffi::sws_getCoefficients(space),
                full_in,
                to,
                full_out,
                brightness,
                contrast,
                saturation,
            );
        }
    }
}

fn unwrap_scaler(scaler: &mut ff::software::scaling::Context) -> *mut ffi::SwsContext {
    // SAFETY: the pointer is only used while `scaler` is borrowed mutably by the caller.
    unsafe { scaler.as_mut_ptr() }
}

/// Resamples `frame` (or, without one, what the resampler still holds) and appends it to `pcm`.
///
/// `resampling::Context::run` of `ffmpeg-next` gives its output the length of its input, so that raising the rate
/// leaves more in the resampler with every call.
///
/// # Errors
/// `InputChanged` when the frame is not what the resampler was made for; whatever libswresample says.
pub(super) fn resample(
    resampler: &mut ff::software::resampling::Context,
    frame: Option<&ff::frame::Audio>,
    pcm: &mut Vec<f32>,
) -> Result<(), ff::Error> {
    let made_for = *resampler.input();
    if let Some(frame) = frame {
        let same = frame.format() == made_for.format
            && frame.rate() == made_for.rate
            && i32::from(frame.channels()) == made_for.channel_layout.channels();
        if !same || frame.samples() == 0 {
            return Err(ff::Error::InputChanged);
        }
    }
    // SAFETY: the resampler is initialised for 32-bit float mono output, so one output plane with room for
    // `room` floats is what it writes at most. The frame's planes hold `samples()` samples of the format, rate
    // and channel count checked above; null with 0 samples asks for the rest.
    unsafe {
        let (planes, samples) = match frame {
            Some(frame) => {
                let planes = (*frame.as_ptr()).extended_data;
                (planes.cast::<*const u8>(), frame.samples() as c_int)
            }
            None => (ptr::null_mut(), 0),
        };
        let context = resampler.as_mut_ptr();
        let room = ffi::swr_get_out_samples(context, samples);
        if room < 0 {
            return Err(ff::Error::from(room));
        }
        let start = pcm.len();
        pcm.resize(start + room as usize, 0.0);
        let mut plane = pcm[start..].as_mut_ptr().cast::<u8>();
        let written = ffi::swr_convert(context, &raw mut plane, room, planes, samples);
        pcm.truncate(start + written.max(0) as usize);
        if written < 0 { Err(ff::Error::from(written)) } else { Ok(()) }
    }
}

/// Decodes a subtitle packet to the ASS dialogue lines (or plain texts) it shows. Bitmaps are left out.
///
/// # Errors
/// What the decoder says of a broken packet.
pub(super) fn subtitle_lines(
    decoder: &mut ff::decoder::Subtitle,
    packet: &ff::Packet,
) -> Result<Vec<String>, ff::Error> {
    let mut subtitle = ff::Subtitle::new();
    let shown = decoder.decode(packet, &mut subtitle)?;
    let mut lines = Vec::new();
    // SAFETY: after a successful call `rects` holds `num_rects` valid pointers whose texts are null or
    // NUL-terminated; `avsubtitle_free` releases them once, and the zeroed struct is not read again.
    unsafe {
        let raw = subtitle.as_mut_ptr();
        if shown && !(*raw).rects.is_null() {
            for i in 0..(*raw).num_rects as usize {
                let rect = *(*raw).rects.add(i);
                lines.extend(lossy((*rect).ass).or_else(|| lossy((*rect).text)));
            }
        }
        ffi::avsubtitle_free(raw);
    }
    Ok(lines)
}

/// # Safety
/// `text` must be null or NUL-terminated.
unsafe fn lossy(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}
