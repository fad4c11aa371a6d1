import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.connector.ExternalCommandRunner;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.sources.CreatableRelationProvider;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.sources.RelationProvider;
import org.apache.spark.sql.sources.TableScan;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Stands in for Google's connector, behind the same interfaces of Spark. Its option bigQueryHttpEndpoint is a folder:
 * what it is asked goes to the file "asked", and a line "TEXT ROWS" of "answers", with a tab between, says what follows
 * where that contains a text: rows with | between, or with ! an error; the first time only where "once " is before it.
 */
public class BigQuery
    implements DataSourceRegister, ExternalCommandRunner, CreatableRelationProvider, RelationProvider {
  private static final String ONCE = "once ";

  @Override
  public String shortName() {
    return "bigquery";
  }

  @Override
  public String[] executeCommand(String command, CaseInsensitiveStringMap options) {
    if (command.trim().startsWith("SELECT")) {
      throw new IllegalArgumentException("SELECT and WITH statements are not supported for EXECUTE IMMEDIATE.");
    }
    String[] rows = answer(command, options.asCaseSensitiveMap());
    if (command.contains(";") && rows.length > 0) {
      throw new NullPointerException("as Google's client does: scripts have no table of results");
    }
    return rows;
  }

  @Override
  public BaseRelation createRelation(
      SQLContext context, SaveMode mode, scala.collection.immutable.Map<String, String> options, Dataset<Row> rows) {
    answer(mode + " " + rows.count() + " rows", CollectionConverters.asJava(options));
    return new Rows(context, rows);
  }

  @Override
  public BaseRelation createRelation(SQLContext context, scala.collection.immutable.Map<String, String> options) {
    return new Rows(context, context.sql(answer("Read", CollectionConverters.asJava(options))[0]));
  }

  private static String[] answer(String what, Map<String, String> given) {
    Map<String, String> options = new TreeMap<>();
    given.forEach((name, value) -> options.put(name.toLowerCase(Locale.ROOT), value));
    Path folder = Path.of(options.remove("bigqueryhttpendpoint"));
    try {
      Files.writeString(
          folder.resolve("asked"), what + "\n" + options + "\n\n", StandardOpenOption.CREATE, StandardOpenOption.APPEND);
      List<String> answers = new ArrayList<>(Files.readAllLines(folder.resolve("answers")));
      for (String line : answers) {
        String[] parts = line.split("\t", 2);
        if (what.contains(parts[0])) {
          if (parts[1].startsWith(ONCE)) {
            answers.remove(line);
            Files.write(folder.resolve("answers"), answers);
          }
          return rows(parts[1].replaceFirst("^" + ONCE, ""));
        }
      }
      return new String[0];
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  private static String[] rows(String answer) {
    if (answer.startsWith("!")) {
      String byHttp = "404 Not Found GET https://bigquery.googleapis.com/bigquery/v2/projects/shop { \"code\": 404 }";
      throw new IllegalStateException(answer.substring(1), new IOException(byHttp));
    }
    return answer.isEmpty() ? new String[0] : answer.split("\\|");
  }

  private static final class Rows extends BaseRelation implements TableScan {
    private final SQLContext context;
    private final Dataset<Row> rows;

    Rows(SQLContext context, Dataset<Row> rows) {
      this.context = context;
      this.rows = rows;
    }

    @Override
    public SQLContext sqlContext() {
      return context;
    }

    @Override
    public StructType schema() {
      return rows.schema();
    }

    @Override
    public RDD<Row> buildScan() {
      return rows.rdd();
    }
  }
}
