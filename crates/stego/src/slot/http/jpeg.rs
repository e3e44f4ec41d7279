//! Baseline JPEG pictures (ITU-T T.81) that hide bytes in the bits after the Huffman codes of AC
//! coefficients.
//!
//! These bits encode the sign and the value of a coefficient. The Huffman code before them states
//! how many bits follow (T.81, section F.1.2.2). Therefore a picture stays valid, with the same
//! tables and codes, whatever the values of the bits are. The length of the file is also the same,
//! except for stuffed bytes. The picture looks damaged. The receiver does not need the original
//! picture.

/// Maximum number of blocks in a picture: 16 megapixels of one component.
const BLOCKS: usize = 1 << 18;
/// Marker: start of the image (ITU-T T.81, table B.1).
const SOI: u8 = 0xd8;
/// Marker: end of the image (ITU-T T.81, table B.1).
const EOI: u8 = 0xd9;
/// Marker: start of a scan (ITU-T T.81, table B.1).
const SOS: u8 = 0xda;
/// Marker: definition of Huffman tables (ITU-T T.81, table B.1).
const DHT: u8 = 0xc4;
/// Marker: definition of the restart interval (ITU-T T.81, table B.1).
const DRI: u8 = 0xdd;
/// Marker: start of a baseline frame, SOF0 (ITU-T T.81, table B.1).
const BASELINE: u8 = 0xc0;

/// Error: a file is not a picture of a kind that can hide bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotPicture;

/// A parsed picture.
#[derive(Clone, Debug)]
pub(crate) struct Picture {
    /// The bytes of the file before the scan's coded data.
    head: Vec<u8>,
    /// The Huffman-coded data of the picture, without stuffed bytes and restart markers.
    scan: Vec<u8>,
    /// Positions in `scan`, in bytes, at which the file has restart markers.
    restarts: Vec<usize>,
    /// Position and length, in bits of `scan`, of each group of consecutive bits that can hide
    /// data: they may have any value.
    free: Vec<(u32, u8)>,
}

impl Picture {
    /// Parses a file.
    ///
    /// # Errors
    /// The file is not a well-formed baseline JPEG of one scan.
    pub(crate) fn read(file: &[u8]) -> Result<Picture, NotPicture> {
        let (frame, start) = PictureHeader::read(file)?;
        let (scan, restarts, end) = unstuff(&file[start..])?;
        if file[start + end..] != [0xff, EOI] {
            return Err(NotPicture);
        }
        let free = frame.walk(&scan, &restarts)?;
        Ok(Picture { head: file[..start].to_vec(), scan, restarts, free })
    }

    /// Returns the number of bytes that the picture can hide.
    pub(crate) fn capacity(&self) -> usize {
        self.free.iter().map(|(_, bits)| usize::from(*bits)).sum::<usize>() / 8
    }

    /// Returns the bytes that the picture hides.
    pub(crate) fn hidden(&self) -> Vec<u8> {
        let bits: Vec<bool> = self.places().map(|at| bit(&self.scan, at)).collect();
        let byte = |bits: &[bool]| bits.iter().fold(0, |byte, bit| byte << 1 | u8::from(*bit));
        bits.as_chunks::<8>().0.iter().map(|bits| byte(bits)).collect()
    }

    /// Appends the picture's file with the bytes `hidden` in it. Drops the bytes at the end for
    /// which the picture has no room.
    pub(crate) fn write(&self, hidden: &[u8], out: &mut Vec<u8>) {
        let mut scan = self.scan.clone();
        for (number, at) in self.places().take(hidden.len() * 8).enumerate() {
            let mask = 0x80 >> (at % 8);
            let set = bit(hidden, number);
            scan[at / 8] = if set { scan[at / 8] | mask } else { scan[at / 8] & !mask };
        }
        out.extend_from_slice(&self.head);
        let mut restarts = self.restarts.iter().zip((0..8_u8).cycle()).peekable();
        for (at, &byte) in scan.iter().enumerate() {
            if let Some((_, number)) = restarts.next_if(|(restart, _)| **restart == at) {
                out.extend([0xff, 0xd0 + number]);
            }
            out.push(byte);
            out.extend((byte == 0xff).then_some(0));
        }
        out.extend([0xff, EOI]);
    }

    fn places(&self) -> impl Iterator<Item = usize> + '_ {
        let bits = |(at, bits): &(u32, u8)| *at as usize..*at as usize + usize::from(*bits);
        self.free.iter().flat_map(bits)
    }
}

fn bit(bytes: &[u8], at: usize) -> bool {
    bytes[at / 8] >> (7 - at % 8) & 1 == 1
}

/// Reads a scan (the coded data of a picture) from the front of `bytes`. Returns the coded data
/// without stuffed bytes and markers, the positions of the restart markers in it, and the scan's
/// length in the file.
fn unstuff(bytes: &[u8]) -> Result<(Vec<u8>, Vec<usize>, usize), NotPicture> {
    let (mut scan, mut restarts, mut at) = (Vec::with_capacity(bytes.len()), Vec::new(), 0);
    loop {
        match bytes[at..] {
            [0xff, 0, ..] => scan.push(0xff),
            [0xff, marker @ 0xd0..=0xd7, ..] => {
                if usize::from(marker - 0xd0) != restarts.len() % 8 {
                    return Err(NotPicture);
                }
                restarts.push(scan.len());
            }
            [0xff, ..] => return Ok((scan, restarts, at)),
            [byte, ..] => {
                scan.push(byte);
                at += 1;
                continue;
            }
            [] => return Err(NotPicture),
        }
        at += 2;
    }
}

/// One Huffman table of a picture: the codes, ordered by length.
#[derive(Clone, Debug)]
struct Codes {
    /// For each code length from 1 to 16 bits: the first code, the number of codes, and the index
    /// of the first code's symbol.
    lengths: [(u32, u32, usize); 16],
    symbols: Vec<u8>,
}

impl Codes {
    fn read(bytes: &mut &[u8]) -> Option<Codes> {
        let counts = bytes.split_off(..16)?;
        let all = counts.iter().map(|&count| usize::from(count)).sum();
        let symbols = bytes.split_off(..all)?.to_vec();
        let (mut lengths, mut code, mut at) = ([(0, 0, 0); 16], 0, 0);
        for (place, &count) in counts.iter().enumerate() {
            lengths[place] = (code, u32::from(count), at);
            code = (code + u32::from(count)) << 1;
            at += usize::from(count);
        }
        Some(Codes { lengths, symbols })
    }

    fn decode(&self, bits: &mut Bits<'_>) -> Result<u8, NotPicture> {
        let mut code = 0;
        for (first, count, at) in self.lengths {
            code = code << 1 | u32::from(bits.next()?);
            if code.wrapping_sub(first) < count {
                return self.symbols.get(at + (code - first) as usize).copied().ok_or(NotPicture);
            }
        }
        Err(NotPicture)
    }
}

/// A reader of coded data, bit by bit.
struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Bits<'_> {
    fn next(&mut self) -> Result<bool, NotPicture> {
        let there = self.at < self.bytes.len() * 8;
        let value = there.then(|| bit(self.bytes, self.at)).ok_or(NotPicture)?;
        self.at += 1;
        Ok(value)
    }

    fn skip(&mut self, bits: u8) -> Result<(), NotPicture> {
        self.at += usize::from(bits);
        (self.at <= self.bytes.len() * 8).then_some(()).ok_or(NotPicture)
    }

    /// Skips to the end of the byte, whose remaining bits have to be ones.
    fn align(&mut self) -> Result<(), NotPicture> {
        while !self.at.is_multiple_of(8) {
            self.next()?.then_some(()).ok_or(NotPicture)?;
        }
        Ok(())
    }
}

/// A colour component of a picture, such as luminance.
#[derive(Clone, Copy, Debug)]
struct Component {
    id: u8,
    across: usize,
    down: usize,
    dc: usize,
    ac: usize,
}

/// The header fields and tables of a picture that are needed to decode its scan.
#[derive(Debug)]
struct PictureHeader {
    width: usize,
    height: usize,
    components: Vec<Component>,
    dc: [Option<Codes>; 4],
    ac: [Option<Codes>; 4],
    /// Number of minimum coded units (MCUs) between two restart markers; 0 if there are none.
    interval: usize,
}

impl PictureHeader {
    /// Parses the part of a file before the coded data. Returns the picture's parameters, and the
    /// number of parsed bytes.
    fn read(file: &[u8]) -> Result<(PictureHeader, usize), NotPicture> {
        let mut rest = file.strip_prefix(&[0xff, SOI]).ok_or(NotPicture)?;
        let mut frame = PictureHeader {
            width: 0,
            height: 0,
            components: Vec::new(),
            dc: [const { None }; 4],
            ac: [const { None }; 4],
            interval: 0,
        };
        loop {
            let [0xff, marker, high, low] = *rest.split_off(..4).ok_or(NotPicture)? else {
                return Err(NotPicture);
            };
            let length = usize::from(u16::from_be_bytes([high, low]));
            let body = length.checked_sub(2).and_then(|length| rest.split_off(..length));
            let body = body.ok_or(NotPicture)?;
            match marker {
                BASELINE if frame.components.is_empty() => frame.begin(body).ok_or(NotPicture)?,
                DHT => frame.tables(body).ok_or(NotPicture)?,
                DRI => match *body {
                    [high, low] => frame.interval = u16::from_be_bytes([high, low]).into(),
                    _ => return Err(NotPicture),
                },
                SOS => {
                    frame.scan(body).ok_or(NotPicture)?;
                    return Ok((frame, file.len() - rest.len()));
                }
                // These are other kinds of frames, arithmetic coding, and markers without a body.
                0xc0..=0xcf | 0xd0..=0xd9 | 0x00..=0x01 | 0xff => return Err(NotPicture),
                _ => {}
            }
        }
    }

    fn begin(&mut self, body: &[u8]) -> Option<()> {
        let [8, h1, h0, w1, w0, count, rest @ ..] = body else { return None };
        self.height = u16::from_be_bytes([*h1, *h0]).into();
        self.width = u16::from_be_bytes([*w1, *w0]).into();
        let (parts, over) = rest.as_chunks::<3>();
        let usual = matches!(count, 1..=4) && parts.len() == usize::from(*count);
        if !usual || !over.is_empty() || self.width == 0 || self.height == 0 {
            return None;
        }
        for &[id, sampling, _] in parts {
            let (across, down) = (usize::from(sampling >> 4), usize::from(sampling & 15));
            if !(1..=4).contains(&across) || !(1..=4).contains(&down) {
                return None;
            }
            self.components.push(Component { id, across, down, dc: 0, ac: 0 });
        }
        Some(())
    }

    fn tables(&mut self, mut body: &[u8]) -> Option<()> {
        while let Some(&kind) = body.split_off_first() {
            let tables = if kind >> 4 == 0 { &mut self.dc } else { &mut self.ac };
            let place = tables.get_mut(usize::from(kind & 15)).filter(|_| kind < 0x20)?;
            *place = Some(Codes::read(&mut body)?);
        }
        Some(())
    }

    /// Parses a scan's header. The scan has to contain all components, in their order. Returns
    /// `None` if the header is not valid.
    fn scan(&mut self, body: &[u8]) -> Option<()> {
        let (&count, rest) = body.split_first()?;
        let (parts, over) = rest.as_chunks::<2>();
        // After the components follow the first and the last coefficient, and 0.
        let [parts @ .., [0, 63]] = parts else { return None };
        let all = usize::from(count) == parts.len() && parts.len() == self.components.len();
        if !all || over != [0] || parts.is_empty() {
            return None;
        }
        for (component, &[id, tables]) in self.components.iter_mut().zip(parts) {
            (component.dc, component.ac) = (usize::from(tables >> 4), usize::from(tables & 15));
            let there =
                self.dc.get(component.dc)?.is_some() && self.ac.get(component.ac)?.is_some();
            (component.id == id && there).then_some(())?;
        }
        Some(())
    }

    /// Returns the number of minimum coded units (MCUs) in the scan, and the number of each
    /// component's blocks in an MCU.
    fn units(&self) -> (usize, Vec<(Component, usize)>) {
        let across = self.components.iter().map(|one| one.across).max().unwrap_or(1);
        let down = self.components.iter().map(|one| one.down).max().unwrap_or(1);
        // A scan of one component has one block per MCU.
        if let [one] = self.components[..] {
            return (self.width.div_ceil(8) * self.height.div_ceil(8), vec![(one, 1)]);
        }
        let units = self.width.div_ceil(8 * across) * self.height.div_ceil(8 * down);
        (units, self.components.iter().map(|one| (*one, one.across * one.down)).collect())
    }

    /// Decodes a scan, and returns the bits that can hide data, because they may have any value:
    /// position and length of each group of consecutive bits.
    fn walk(&self, scan: &[u8], restarts: &[usize]) -> Result<Vec<(u32, u8)>, NotPicture> {
        let (units, blocks) = self.units();
        let in_unit: usize = blocks.iter().map(|(_, count)| count).sum();
        let expected = match self.interval {
            0 => 0,
            interval => units.div_ceil(interval) - 1,
        };
        if units * in_unit > BLOCKS || restarts.len() != expected {
            return Err(NotPicture);
        }
        let (mut bits, mut free) = (Bits { bytes: scan, at: 0 }, Vec::new());
        let mut restarts = restarts.iter();
        for unit in 0..units {
            if self.interval > 0 && unit > 0 && unit % self.interval == 0 {
                bits.align()?;
                let there = restarts.next().is_some_and(|&at| at * 8 == bits.at);
                there.then_some(()).ok_or(NotPicture)?;
            }
            for (component, count) in &blocks {
                (0..*count).try_for_each(|_| self.block(*component, &mut bits, &mut free))?;
            }
        }
        bits.align()?;
        (bits.at == scan.len() * 8).then_some(free).ok_or(NotPicture)
    }

    fn block(
        &self,
        component: Component,
        bits: &mut Bits<'_>,
        free: &mut Vec<(u32, u8)>,
    ) -> Result<(), NotPicture> {
        let (Some(dc), Some(ac)) = (&self.dc[component.dc], &self.ac[component.ac]) else {
            return Err(NotPicture);
        };
        let size = dc.decode(bits)?;
        if size > 11 {
            return Err(NotPicture);
        }
        bits.skip(size)?;
        let mut place = 1;
        while place < 64 {
            let symbol = ac.decode(bits)?;
            let (zeros, size) = (symbol >> 4, symbol & 15);
            match (zeros, size) {
                (0, 0) => return Ok(()),
                (15, 0) => place += 16,
                (_, 1..=10) => {
                    place += usize::from(zeros) + 1;
                    free.push((bits.at as u32, size));
                    bits.skip(size)?;
                }
                _ => return Err(NotPicture),
            }
        }
        (place == 64).then_some(()).ok_or(NotPicture)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A baseline JPEG with three components.
    pub(in super::super) const COLOUR: &[u8] = include_bytes!("../../../testdata/colour.jpg");
    const GREY: &[u8] = include_bytes!("../../../testdata/grey.jpg");
    const RESTARTS: &[u8] = include_bytes!("../../../testdata/restarts.jpg");
    const PROGRESSIVE: &[u8] = include_bytes!("../../../testdata/progressive.jpg");

    #[test]
    fn pictures_give_back_what_was_hidden_and_themselves() {
        for file in [COLOUR, GREY, RESTARTS] {
            let picture = Picture::read(file).unwrap();
            let (capacity, mut same) = (picture.capacity(), Vec::new());
            assert!(capacity * 20 > file.len(), "{capacity} of {}", file.len());
            picture.write(&picture.hidden(), &mut same);
            assert!(same == file);
            let hidden: Vec<u8> = (0..capacity).map(|at| ((at * 89) ^ (at >> 3)) as u8).collect();
            let mut changed = Vec::new();
            picture.write(&hidden, &mut changed);
            assert!(changed != file && changed.len().abs_diff(file.len()) < file.len() / 50);
            assert_eq!(Picture::read(&changed).unwrap().hidden(), hidden);
        }
    }

    #[test]
    fn what_is_cut_changed_or_of_another_kind_is_no_picture() {
        assert!(Picture::read(PROGRESSIVE).is_err());
        for cut in 0..GREY.len() {
            assert!(Picture::read(&GREY[..cut]).is_err(), "{cut}");
        }
        for file in [GREY, RESTARTS] {
            for at in 0..file.len() {
                let mut changed = file.to_vec();
                changed[at] ^= 0x55;
                // The result may be another picture or an error, but the parser must not panic.
                let _ = Picture::read(&changed);
            }
        }
        assert!(Picture::read(&[GREY, b"x"].concat()).is_err());
    }
}
