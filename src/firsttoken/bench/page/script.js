(function () {
  "use strict";
  var root = document.documentElement;
  function show(language) {
    root.lang = language === "zh" ? "zh-CN" : "en";
    document.querySelectorAll(".languages button").forEach(function (button) {
      button.setAttribute("aria-pressed", String(button.dataset.language === language));
    });
    document.querySelectorAll("abbr[data-en]").forEach(function (term) {
      term.title = term.dataset[language];
    });
    try { localStorage.setItem("firsttoken-language", language); } catch (ignored) { /* a page from a file may have no storage */ }
  }
  var before = null;
  try { before = localStorage.getItem("firsttoken-language"); } catch (ignored) { /* the browser's language then */ }
  document.querySelectorAll(".languages button").forEach(function (button) {
    button.addEventListener("click", function () { show(button.dataset.language); });
  });
  show(before || ((navigator.language || "en").toLowerCase().indexOf("zh") === 0 ? "zh" : "en"));
})();
