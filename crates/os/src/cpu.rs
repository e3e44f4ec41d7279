//! Capabilities of the processor.

/// Returns whether the processor has instructions for AES-GCM. Without them, ChaCha20-Poly1305 is
/// faster.
#[must_use]
pub fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    let has = std::arch::is_x86_feature_detected!("aes")
        && std::arch::is_x86_feature_detected!("pclmulqdq");
    #[cfg(target_arch = "aarch64")]
    let has = std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let has = false;
    has
}
