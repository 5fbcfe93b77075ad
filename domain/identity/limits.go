package identity

// The most characters (code points) of an identity, of the key and of the value of a trait; each has at least one, and none holds U+0000.
const (
	MaxIdentity   = 200
	MaxTraitKey   = 200
	MaxTraitValue = 2000
)
