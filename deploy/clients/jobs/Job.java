// The main job with the client that openapi-generator makes.
import java.util.UUID;
import org.openapitools.client.ApiClient;
import org.openapitools.client.ApiException;
import org.openapitools.client.api.DebuggingApi;
import org.openapitools.client.api.IngestionApi;
import org.openapitools.client.api.RecallApi;
import org.openapitools.client.model.Explained;
import org.openapitools.client.model.Ingest;
import org.openapitools.client.model.Recall;
import org.openapitools.client.model.RecallPage;

public class Job {
  interface Route<T> {
    T call() throws ApiException;
  }

  static final long DEADLINE = System.nanoTime() + 300_000_000_000L;

  /** Calls until the service does not refuse for load. */
  static <T> T call(Route<T> route) throws Exception {
    while (true) {
      try {
        return route.call();
      } catch (ApiException refused) {
        if (refused.getCode() != 503 || System.nanoTime() > DEADLINE) throw refused;
        Thread.sleep(100);
      }
    }
  }

  static void check(boolean holds, Object what) {
    if (!holds) throw new IllegalStateException(String.valueOf(what));
  }

  public static void main(String[] args) throws Exception {
    ApiClient client = new ApiClient();
    client.updateBaseUri(System.getenv("ANNALS_URL"));
    String key = "Bearer " + System.getenv("ANNALS_PROJECT_KEY");
    client.setRequestInterceptor(request -> request.header("Authorization", key));
    IngestionApi ingestion = new IngestionApi(client);

    Ingest text = new Ingest().content("My favourite editor is Helix.").id("java-1").identity("ana");
    UUID send = call(() -> ingestion.ingest(text)).getIngestionId();
    while (call(() -> ingestion.getIngestion(send)).getStatus().equals("processing")) {
      check(System.nanoTime() < DEADLINE, send);
      Thread.sleep(20);
    }
    Recall question = new Recall().query("Which editor does Ana like?").identity("ana");
    RecallPage page = call(() -> new RecallApi(client).recall(question));
    check(page.getResults().stream().anyMatch(result -> result.getContent().contains("Helix")), page);
    Explained explained = call(() -> new DebuggingApi(client).explainIngestion(send));
    check("indexed".equals(explained.getPhase()), explained);
    call(() -> ingestion.deleteDataPoint("java-1"));
    try {
      call(() -> ingestion.deleteDataPoint("java-1"));
      check(false, "it is deleted twice");
    } catch (ApiException refused) {
      check(refused.getCode() == 404, refused);
    }
    System.out.println("the main job is done");
  }
}
