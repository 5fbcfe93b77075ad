// What the console does where scripts run. Each part has a plain link or form behind it.
(function () {
  "use strict";

  // The zone of the browser, until the person sets one.
  var zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (zone && document.cookie.indexOf("zone=" + zone) < 0) {
    document.cookie = "zone=" + zone + ";path=/;max-age=31536000;samesite=lax";
  }

  function copyButtons(root) {
    root.querySelectorAll(".copy:not([data-ready])").forEach(function (box) {
      box.setAttribute("data-ready", "");
      var button = document.createElement("button");
      button.type = "button";
      button.className = "small";
      button.textContent = "Copy";
      button.addEventListener("click", function () {
        navigator.clipboard.writeText(box.querySelector("code").textContent).then(function () {
          button.textContent = "Copied";
        });
      });
      box.appendChild(button);
    });
  }

  // Forms with data-confirm ask first; without scripts the page has a step of its own.
  document.addEventListener("submit", function (e) {
    var text = e.target.getAttribute("data-confirm");
    if (text && !window.confirm(text)) e.preventDefault();
  });

  function rows() {
    return Array.prototype.slice.call(document.querySelectorAll("main tbody tr")).filter(function (r) {
      return r.querySelector("a");
    });
  }

  function move(by) {
    var list = rows(), at = list.indexOf(document.querySelector("tr.current"));
    if (!list.length) return;
    if (at >= 0) list[at].classList.remove("current");
    var next = list[Math.max(0, Math.min(list.length - 1, at + by))];
    next.classList.add("current");
    next.querySelector("a").focus();
  }

  document.addEventListener("keydown", function (e) {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    var typing = /^(INPUT|TEXTAREA|SELECT)$/.test(e.target.tagName);
    if (e.key === "Escape") {
      if (typing) e.target.blur();
      document.querySelectorAll("details[open].menu, details[open].drawer").forEach(function (d) { d.open = false; });
      return;
    }
    if (typing) return;
    if (e.key === "/") {
      var find = document.getElementById("find");
      if (find) { e.preventDefault(); find.focus(); find.select(); }
    } else if (e.key === "j") move(1);
    else if (e.key === "k") move(-1);
  });

  copyButtons(document);
  document.addEventListener("htmx:afterSettle", function (e) { copyButtons(e.target); });
})();
