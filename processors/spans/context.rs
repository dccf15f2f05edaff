//! The context of a trace: reads and writes the header `traceparent` of the
//! [W3C](https://www.w3.org/TR/trace-context/#traceparent-header).

use std::fmt;

pub const TRACEPARENT: &str = "traceparent";
/// Data of a vendor about the trace in `traceparent`. It never goes with the id of another trace.
pub const TRACESTATE: &str = "tracestate";

/// Bit of the flags: the sender records its span.
const SAMPLED: u8 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TraceId(pub(crate) u128);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpanId(pub(crate) u64);

/// The span of a sender, or one of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    pub trace: TraceId,
    pub span: SpanId,
    pub is_sampled: bool,
}

impl Context {
    /// Reads a header. `None` for a malformed one: the standard asks to ignore the header. A later
    /// version may add fields at the end.
    pub fn parse(header: &[u8]) -> Option<Context> {
        let mut fields = std::str::from_utf8(header).ok()?.splitn(5, '-');
        let version = digits(fields.next()?, 2)?;
        let trace = digits(fields.next()?, 32)?;
        let span = digits(fields.next()?, 16)? as u64;
        let flags = digits(fields.next()?, 2)? as u8;
        let has_more = fields.next().is_some();
        let is_known = version != 0xff && (version > 0 || !has_more);
        (is_known && trace != 0 && span != 0).then_some(Context {
            trace: TraceId(trace),
            span: SpanId(span),
            is_sampled: flags & SAMPLED != 0,
        })
    }
}

/// Reads so many lower-case hexadecimal digits.
fn digits(text: &str, count: usize) -> Option<u128> {
    let is_hex = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    (text.len() == count && is_hex).then(|| u128::from_str_radix(text, 16).ok())?
}

/// Writes the header.
impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = if self.is_sampled { SAMPLED } else { 0 };
        write!(f, "00-{}-{}-{flags:02x}", self.trace, self.span)
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const SPAN: &str = "b7ad6b7169203331";

    #[test]
    fn a_header_is_read_as_the_standard_says() {
        for (header, expected) in [
            (format!("00-{TRACE}-{SPAN}-01"), Some(true)),
            (format!("00-{TRACE}-{SPAN}-00"), Some(false)),
            // Unknown flags are not ours; the one of sampling counts.
            (format!("00-{TRACE}-{SPAN}-ff"), Some(true)),
            (format!("00-{TRACE}-{SPAN}-02"), Some(false)),
            (format!("01-{TRACE}-{SPAN}-01"), Some(true)),
            (format!("01-{TRACE}-{SPAN}-01-more-to-come"), Some(true)),
            (format!("00-{TRACE}-{SPAN}-01-more"), None),
            (format!("01-{TRACE}-{SPAN}-01x"), None),
            (format!("ff-{TRACE}-{SPAN}-01"), None),
            (format!("00-{}-{SPAN}-01", "0".repeat(32)), None),
            (format!("00-{TRACE}-{}-01", "0".repeat(16)), None),
            (format!("00-{}-{SPAN}-01", TRACE.to_uppercase()), None),
            (format!("00-{TRACE}0-{SPAN}-01"), None),
            (format!("00-{TRACE}-{SPAN}"), None),
            (format!("00-+{}-{SPAN}-01", &TRACE[1..]), None),
            (format!(" 00-{TRACE}-{SPAN}-01"), None),
            ("00".to_owned(), None),
            (String::new(), None),
        ] {
            let read = Context::parse(header.as_bytes());
            assert_eq!(read.map(|context| context.is_sampled), expected, "{header}");
        }
        assert_eq!(Context::parse(b"00-\xff\xfe"), None);
    }

    #[test]
    fn a_header_that_is_written_is_read_as_the_same() {
        let header = format!("00-{TRACE}-{SPAN}-01");
        let context = Context::parse(header.as_bytes()).expect("valid");
        assert_eq!(context.to_string(), header);
        let small = Context { trace: TraceId(1), span: SpanId(2), is_sampled: false };
        assert_eq!(Context::parse(small.to_string().as_bytes()), Some(small));
    }
}
