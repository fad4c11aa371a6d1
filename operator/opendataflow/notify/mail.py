"""Mail as a target, over one SMTP server. A password is sent over TLS only."""

import smtplib
import ssl
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.utils import formatdate, make_msgid

from opendataflow.core.text.alert import text
from opendataflow.errors import NotDelivered
from opendataflow.model.records.alert import Alert
from opendataflow.notify.delivery import SECONDS, DeliveryThread, unreachable_error


@dataclass(frozen=True)
class MailServer:
    """An SMTP server. `tls`: TLS from the first byte. Otherwise STARTTLS, if the server offers it."""

    host: str
    port: int
    tls: bool
    user: str | None = None
    password: str | None = field(default=None, repr=False)


class MailTarget:
    """Sends each message to all recipients."""

    def __init__(self, server: MailServer, sender: str, recipients: tuple[str, ...], seconds: float = SECONDS) -> None:
        self._server = server
        self._sender = sender
        self._recipients = recipients
        self._delivery = DeliveryThread(seconds)
        self.name = f"mail to {', '.join(recipients)} by {server.host}:{server.port}"
        self.address = self.name

    async def deliver(self, alert: Alert) -> None:
        """Send the mail. Raise NotDelivered if the server accepts it for none of the recipients."""
        message = self._message(alert)
        await self._delivery.run(lambda: self._send(message))

    def _message(self, alert: Alert) -> EmailMessage:
        message = EmailMessage()
        state = "failing" if alert.failing else "healthy"
        message["Subject"] = " ".join(f"[dataflow] {alert.job}: {alert.kind.value}, {state}".split())
        message["From"] = self._sender
        message["To"] = ", ".join(self._recipients)
        message["Date"] = formatdate(localtime=True)
        message["Message-ID"] = make_msgid(domain="opendataflow")
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(f"{text(alert)}\n\nsince {alert.since.isoformat(sep=' ', timespec='seconds')}\n")
        return message

    def _send(self, message: EmailMessage) -> None:
        try:
            with self._connected() as smtp:
                self._log_in(smtp)
                smtp.send_message(message, self._sender, self._recipients)
        except smtplib.SMTPRecipientsRefused:
            raise NotDelivered("it takes mail for none of the recipients") from None
        except smtplib.SMTPResponseException as error:
            reason = (
                error.smtp_error.decode("utf-8", "replace") if isinstance(error.smtp_error, bytes) else error.smtp_error
            )
            raise NotDelivered(f"it answers {error.smtp_code} {reason}") from None
        except (OSError, smtplib.SMTPException, ValueError) as error:
            raise unreachable_error(error, str(error) or type(error).__name__, self._delivery.seconds) from None

    def _connected(self) -> smtplib.SMTP:
        server, seconds = self._server, self._delivery.seconds
        if server.tls:
            return smtplib.SMTP_SSL(server.host, server.port, timeout=seconds, context=ssl.create_default_context())
        return smtplib.SMTP(server.host, server.port, timeout=seconds)

    def _log_in(self, smtp: smtplib.SMTP) -> None:
        encrypted = self._server.tls
        smtp.ehlo_or_helo_if_needed()
        if not encrypted and smtp.has_extn("starttls"):
            smtp.starttls(context=ssl.create_default_context())
            encrypted = True
        if self._server.user is None or self._server.password is None:
            return
        if not encrypted:
            raise NotDelivered("it offers no TLS, and the password is not sent without")
        smtp.login(self._server.user, self._server.password)
