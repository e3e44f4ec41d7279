module anabranch/webtunnel

go 1.26.0

tool (
	gitlab.torproject.org/tpo/anti-censorship/pluggable-transports/webtunnel/main/client
	gitlab.torproject.org/tpo/anti-censorship/pluggable-transports/webtunnel/main/server
)

require (
	gitlab.torproject.org/tpo/anti-censorship/pluggable-transports/goptlib v1.5.0 // indirect
	gitlab.torproject.org/tpo/anti-censorship/pluggable-transports/webtunnel v0.0.2 // indirect
)
