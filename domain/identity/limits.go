package identity

import "github.com/annals-project/annals/domain/fault"

// The most characters (code points) of an identity, of the key and of the value of a trait; each has at least one, and none holds U+0000.
const (
	MaxIdentity   = 200
	MaxTraitKey   = 200
	MaxTraitValue = 2000
)

// The limits of what one record and one bulk write can bring. A record that was stored beyond them
// stays as it is, and can be made smaller.
const (
	// MaxTraits is the most traits of a record, and the most that one patch removes.
	MaxTraits = 1000
	// MaxTraitBytes is the most bytes of the keys and values of a record in UTF-8.
	MaxTraitBytes = 512 << 10
	// MaxBulkTraits is the most traits of all rows of a bulk write together.
	MaxBulkTraits = 100_000
)

// TraitBytes is the size that MaxTraitBytes bounds.
func TraitBytes(traits map[string]string) int {
	size := 0
	for key, value := range traits {
		size += len(key) + len(value)
	}
	return size
}

// CheckTraits returns the fault traits-invalid for traits beyond the limits, unless those of the
// record before the change were as many and as big.
func CheckTraits(before, traits map[string]string) error {
	if n, most := len(traits), max(MaxTraits, len(before)); n > most {
		return fault.New(fault.Invalid, fault.CodeTraitsInvalid, "traits: the identity would have %d: want at most %d", n, MaxTraits)
	}
	if size := TraitBytes(traits); size > MaxTraitBytes && size > TraitBytes(before) {
		return fault.New(fault.Invalid, fault.CodeTraitsInvalid,
			"traits: keys and values would have %d bytes together: want at most %d", size, MaxTraitBytes)
	}
	return nil
}

// CheckRemoved returns the fault traits-invalid for a patch that removes too many traits.
func CheckRemoved(count int) error {
	if count > MaxTraits {
		return fault.New(fault.Invalid, fault.CodeTraitsInvalid, "traits: %d are null: want at most %d", count, MaxTraits)
	}
	return nil
}

// CheckBulkTraits returns the fault bulk-invalid-rows for a bulk write with too many traits.
func CheckBulkTraits(count int) error {
	if count > MaxBulkTraits {
		return fault.New(fault.Invalid, fault.CodeBulkInvalidRows,
			"the rows have more than %d traits together: send them in several bulk writes", MaxBulkTraits)
	}
	return nil
}
