# Builds from source: what a Mac builds itself it does not quarantine. scripts/release.sh fills in what stands in @.
class Windrow < Formula
  desc "Runs Qwen3-style language models, several tokens per forward pass"
  homepage "@URL@"
  url "@URL@/windrow-@VERSION@.tar.gz"
  sha256 "@SHA256@"
  license "Apache-2.0"

  depends_on "go" => :build

  def install
    ENV["CGO_ENABLED"] = "0"
    system "make", "build"
    bin.install "bin/windrow"
    man1.install Dir["packaging/man/*.1"]
    generate_completions_from_executable(bin/"windrow", "completion", shells: [:bash, :zsh, :fish])
  end

  service do
    run [opt_bin/"windrow", "serve"]
    keep_alive crashed: true
    log_path var/"log/windrow.log"
    error_log_path var/"log/windrow.log"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/windrow version")
    assert_match "#### 42", shell_output("#{bin}/windrow generate --server off 'What is 17 + 25?'")
  end
end
