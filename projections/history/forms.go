package history

// The forms of values, besides "", which shows a text as it is.
const (
	// These name the thing of an id.
	formPerson   = "person"
	formKey      = "key"
	formProject  = "project"
	formWebhook  = "webhook"
	formAudience = "audience"
	// formIdentity and formDataPoint name a record and a text by the id in its stream.
	formIdentity  = "identity"
	formDataPoint = "datapoint"
	// formMembers is the members of an audience, by name.
	formMembers = "members"
	formTime    = "time"
	formNumber  = "number"
	formCredits = "credits" // of tenths
	formCount   = "count"   // of the items of a list
	formList    = "list"
	formRule    = "rule"    // of an audience, as a sentence
	formTraits  = "traits"  // of an identity
	formFilters = "filters" // of a webhook
)

// forms are all forms.
var forms = []string{
	"", formPerson, formKey, formProject, formWebhook, formAudience, formIdentity, formDataPoint, formMembers, formTime, formNumber,
	formCredits, formCount, formList, formRule, formTraits, formFilters,
}
