package history

// The kinds of things that have a history, as About names them.
const (
	OfMember    = "member"
	OfOffer     = "offer"
	OfGrant     = "grant"
	OfAgent     = "agent"
	OfKey       = "key"
	OfCaps      = "caps"
	OfReads     = "reads"
	OfWebhook   = "webhook"
	OfAudience  = "audience"
	OfIdentity  = "identity"
	OfDataPoint = "datapoint"
	OfSend      = "send"
	OfDeletion  = "deletion"
	OfErasure   = "erasure"
)
