module anabranch/peers/amneziawg

go 1.26.0

tool github.com/amnezia-vpn/amneziawg-go

require (
	github.com/amnezia-vpn/amneziawg-go v0.2.16 // indirect
	golang.org/x/crypto v0.39.0 // indirect
	golang.org/x/net v0.41.0 // indirect
	golang.org/x/sys v0.33.0 // indirect
	golang.zx2c4.com/wintun v0.0.0-20230126152724-0fa3db229ce2 // indirect
)
